"""QueryLog: what was answered is kept, chained, rooted, and nothing of it can be changed unseen."""

import datetime
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drw_hf import KeyRing, QueryLog
from drw_hf.asking import Served, expire_log, log_days, log_lines, log_writer, merge_logs, redact_log, root_log
from drw_hf.errors import InvalidInputError, LogNotWrittenError, QueryLogError
from drw_hf.keys import merkle
from small_models import make_key, make_model

TEXTS = ["the film was very good", "we hated the slow ending", "dull"]
LABELS = ["negative", "positive"]


@pytest.fixture(scope="module")
def key():
    return make_key(make_model(), mark="tilt", strength=0.5, temperature=1.0)


@pytest.fixture(scope="module")
def ring(key):
    return KeyRing(key, secret=bytes(range(32)))


def write(folder, key, served, **options):
    with QueryLog(folder).writer(key, **{"label_kind": "hard", **options}) as writer:
        for one in served:
            writer.append([one]).result()
    return QueryLog(folder)


def some(texts=TEXTS, user=None):
    return [Served(text, LABELS[place % 2], user) for place, text in enumerate(texts)]


def files(folder):
    return sorted(path for path in Path(folder).iterdir() if path.suffix == ".jsonl")


class Clock:
    """Says what time it is; for the writer and for the upkeep of days."""

    def __init__(self, monkeypatch, day="2026-11-01"):
        self.moment = datetime.datetime.fromisoformat(f"{day}T12:00:00+00:00")
        outer = self

        class Moment(datetime.datetime):
            @classmethod
            def now(cls, tz=None):
                outer.moment += datetime.timedelta(seconds=1)
                return outer.moment

        monkeypatch.setattr(log_lines, "datetime", Moment)
        monkeypatch.setattr(log_days, "datetime", Moment)

    def on(self, day):
        self.moment = datetime.datetime.fromisoformat(f"{day}T12:00:00+00:00")


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


# -- what is kept


def test_what_was_served_comes_back_in_its_order(tmp_path, key):
    log = write(tmp_path / "log", key, some())
    assert [(line.text, line.answered, line.user) for line in log.lines()] == [
        (text, LABELS[place % 2], None) for place, text in enumerate(TEXTS)
    ]
    assert {line.key for line in log.lines()} == {key.commitment()}
    checked = log.check()
    assert (checked.lines, checked.chains, checked.redacted, checked.rooted, checked.unfinished) == (3, 1, 0, 0, [])


def test_files_are_readable_by_their_owner_alone_and_hold_no_secret(tmp_path, ring):
    users = [Served(text, "negative", "ann") for text in TEXTS]
    write(tmp_path / "log", ring, users)
    (path,) = files(tmp_path / "log")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700
    content = path.read_bytes()
    assert b"ann" in content and ring.token_for("ann").encode() not in content
    own = ring.key_for("ann")
    for secret in (ring.secret, own.secret, own.subkey("query log/texts")):
        assert secret not in content and secret.hex().encode() not in content


def test_scores_pairs_and_words_are_kept(tmp_path, key):
    served = [Served("dull", [0.25, 0.75]), Served(["a film", "a book"], [0.973, 0.027])]
    rows = write(tmp_path / "log", key, served, label_kind="soft").to_dataset()
    assert rows["probs"][:] == [[0.25, 0.75], [0.973, 0.027]] and rows["label"][:] == ["positive", "negative"]
    assert rows["text_pair"][:] == [None, "a book"]
    tagger = make_key(make_model("token-classification"))
    rows = write(tmp_path / "tags", tagger, [Served("ann saw  it", ["B-PER", "O", None])]).to_dataset()
    assert rows["tokens"][:] == [["ann", "saw", "it"]] and rows["labels"][:] == [["B-PER", "O", None]]


def test_a_data_set_is_of_a_customer_an_epoch_and_an_interval_and_stays_in_memory(tmp_path, ring, clock):
    ring = KeyRing(ring.template(), secret=bytes(range(32)))
    folder = tmp_path / "log"
    write(folder, ring, [*some(TEXTS[:2], "ann"), *some(TEXTS[2:], "ben")])
    clock.on("2026-11-02")
    write(folder, ring.rotate(), some(["good"], "ann"))
    log = QueryLog(folder)
    assert log.select(user="ann").to_dataset()["text"][:] == [*TEXTS[:2], "good"]
    assert log.select(epoch=1).to_dataset()["text"][:] == ["good"]
    assert log.select(key=ring.key_for("ben", 0)).to_dataset()["text"][:] == [TEXTS[2]]
    assert log.select(since="2026-11-02").to_dataset()["epoch"][:] == [1]
    before = log.select(until=datetime.date(2026, 11, 2))
    assert len(before.to_dataset()) == 3 and before.to_dataset().cache_files == []
    assert log.users() == ["ann", "ben"]


@pytest.mark.parametrize("wrong", [{"since": "yesterday"}, {"until": 7}])
def test_an_interval_must_be_one(tmp_path, key, wrong):
    with pytest.raises(InvalidInputError, match="is no date or time"):
        write(tmp_path / "log", key, some()).select(**wrong)


def test_a_ring_logs_users_and_a_key_none(tmp_path, key, ring):
    with QueryLog(tmp_path / "a").writer(ring, label_kind="hard") as writer:
        with pytest.raises(InvalidInputError, match="with a ring every line has a user"):
            writer.append(some())
    with QueryLog(tmp_path / "b").writer(key, label_kind="hard") as writer:
        with pytest.raises(InvalidInputError, match="with a single key none has"):
            writer.append(some(user="ann"))


# -- durable


def test_what_waits_at_the_same_time_shares_one_sync(tmp_path, key, monkeypatch):
    gate, first = threading.Event(), threading.Event()
    sync = log_writer.sync

    def slow(descriptor):
        first.set()
        gate.wait(10)
        sync(descriptor)

    with QueryLog(tmp_path / "log").writer(key, label_kind="hard") as writer:
        monkeypatch.setattr(log_writer, "sync", slow)
        futures = [writer.append(some(["one"]))]
        first.wait(10)
        futures += [writer.append(some([f"text {n}"])) for n in range(50)]
        assert not any(future.done() for future in futures)
        gate.set()
        for future in futures:
            future.result(10)
    assert (writer.n_written, writer.n_syncs) == (51, 2)
    assert len(list(QueryLog(tmp_path / "log").lines())) == 51


KILLED = """
import sys, os
sys.path.insert(0, "tests")
from small_models import make_key, make_model
from drw_hf import QueryLog
from drw_hf.asking import Served
key = make_key(make_model(), mark="tilt", strength=0.5, temperature=1.0)
writer = QueryLog(sys.argv[1]).writer(key, label_kind="hard")
for n in range(10**6):
    writer.append([Served(f"text {n}", "negative")]).result()
    os.write(1, f"{n}\\n".encode())
"""


def test_after_kill_9_every_acknowledged_line_is_there_and_the_log_goes_on(tmp_path, key):
    folder, root = tmp_path / "log", Path(__file__).parents[1]
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", KILLED, folder], stdout=subprocess.PIPE, cwd=root
        ) as process:
            for _ in range(40):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else 39
        path = max(files(folder), key=os.path.getmtime)
        with open(path, "ab") as file:
            file.write(b'{"a torn li')  # as a kill in the middle of a write leaves it
        said = [line.text for line in QueryLog(folder).lines()]
        assert {f"text {n}" for n in range(acknowledged + 1)} <= set(said)
        assert path.name in QueryLog(folder).check().unfinished
    write(folder, key, some())
    assert QueryLog(folder).check().chains == 3


def full_disk(limit):
    """No file of this process may grow beyond so many bytes: what a full disk is to a writer."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_on_a_full_disk_nothing_is_acknowledged_and_afterwards_all_goes_on(tmp_path, key):
    folder = tmp_path / "log"
    with QueryLog(folder).writer(key, label_kind="hard") as writer:
        writer.append(some(["before"])).result()
        (path,) = files(folder)
        size, before = path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        try:
            full_disk(size + 200)
            for _ in range(3):
                with pytest.raises(LogNotWrittenError, match="nothing is served unlogged"):
                    writer.append(some(["x" * 500])).result()
            assert path.stat().st_size == size
            full_disk(50)
            with pytest.raises(LogNotWrittenError):
                writer.append(some(["x"])).result()
        finally:
            full_disk(before)
        writer.append(some(["after"])).result()
    assert [line.text for line in QueryLog(folder).lines()] == ["before", "after"]
    assert QueryLog(folder).check().unfinished == []
    assert len(files(folder)) == 1, "an attempt that failed leaves no file behind"


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path, key):
    (tmp_path / "log").write_text("a file")
    with pytest.raises(LogNotWrittenError, match="cannot be written"):
        QueryLog(tmp_path / "log").writer(key, label_kind="hard")


def test_a_closed_writer_says_so(tmp_path, key):
    writer = QueryLog(tmp_path / "log").writer(key, label_kind="hard")
    writer.close()
    with pytest.raises(LogNotWrittenError, match="is closed"):
        writer.append(some())


def test_files_are_ended_by_size_and_by_day(tmp_path, key, clock):
    log = QueryLog(tmp_path / "log")
    with log.writer(key, label_kind="hard", largest_file=2000) as writer:
        for n in range(20):
            writer.append(some([f"text {n}"])).result()
        several = len(files(tmp_path / "log"))
        clock.on("2026-11-02")
        writer.append(some(["tomorrow"])).result()
    assert 3 <= several <= 12 and len(files(tmp_path / "log")) == several + 1
    assert [line.text for line in log.lines()] == [*(f"text {n}" for n in range(20)), "tomorrow"]
    assert log.check().chains == 1


def test_when_the_clock_goes_back_lines_stay_in_order(tmp_path, key, clock):
    with QueryLog(tmp_path / "log").writer(key, label_kind="hard") as writer:
        writer.append(some(["one"])).result()
        clock.on("2026-10-31")
        writer.append(some(["two"])).result()
    assert [line.text for line in QueryLog(tmp_path / "log").lines()] == ["one", "two"]


def test_when_the_clock_goes_back_a_file_that_is_full_is_followed_by_no_earlier_one(tmp_path, key, clock):
    clock.on("2026-11-03")
    with QueryLog(tmp_path / "log").writer(key, label_kind="hard", largest_file=1) as writer:
        for n, day in enumerate(("2026-11-03", "2026-11-01", "2026-11-02", "2026-11-04")):
            clock.on(day)
            writer.append(some([f"text {n}"])).result()
    moments = [line.at for line in QueryLog(tmp_path / "log").lines()]
    assert moments == sorted(moments) and {at[:10] for at in moments} == {"2026-11-03", "2026-11-04"}


def test_the_names_of_a_new_log_are_on_the_disk_too(tmp_path, key, monkeypatch):
    synced, fsync = [], os.fsync

    def note(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    write(tmp_path / "logs" / "one", key, some())
    assert {str(tmp_path), str(tmp_path / "logs"), str(tmp_path / "logs" / "one")} <= set(synced)


def test_a_run_that_was_killed_as_it_began_a_file_still_has_its_place_in_the_next_one(tmp_path, key):
    log = write(tmp_path / "log", key, some(), largest_file=1)
    before = files(log.folder)[-1]
    torn = log.folder / before.name.replace("00004", "00005")
    assert torn != before
    torn.write_bytes(b'{"torn')
    write(log.folder, key, some(["the next run"]))
    assert log.check().lines == 4
    torn.unlink()
    before.unlink()
    with pytest.raises(QueryLogError, match="the end was cut off"):
        log.check()


def test_what_is_no_file_or_cannot_be_read_is_said_to_be_so(tmp_path, key):
    log = write(tmp_path / "log", key, some())
    pipe = log.folder / f"{'0' * 32}-00001.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(QueryLogError, match="is no file"):
        log.check()
    pipe.unlink()
    pipe.symlink_to(tmp_path / "nowhere")
    with pytest.raises(QueryLogError, match=r"cannot read .*No such file"):
        list(log.lines())


# -- nothing is changed unseen


def changed(path, change):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(change(lines)))


def with_field(name, value):
    def change(lines):
        document = {**json.loads(lines[2]), name: value}
        return [*lines[:2], json.dumps(document).encode() + b"\n", *lines[3:]]

    return change


TAMPERED = {
    "an answer": (with_field("answered", "negative"), "altered"),
    "a time": (with_field("at", "2026-01-01T00:00:00.000000+00:00"), "altered"),
    "a key": (with_field("key", "0" * 64), "altered"),
    "a text": (with_field("text", ["another", "0" * 32]), "not what was logged"),
    "a user": (with_field("user", ["eve", "0" * 32]), "not what was logged"),
    "a number": (with_field("n", 7), "missing, or stands somewhere else"),
    "a field of ours": (with_field("added", 1), "damaged"),
    "a type": (with_field("asked", 7), "damaged"),
    "a line cut out": (lambda lines: lines[:2] + lines[3:], "missing, or stands somewhere else"),
    "lines exchanged": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "missing, or stands"),
    "a line twice": (lambda lines: [*lines[:3], lines[2], *lines[3:]], "missing, or stands"),
    "the header gone": (lambda lines: lines[1:], "no query log"),
    "no JSON": (lambda lines: [*lines[:2], b"{]\n", *lines[3:]], "damaged"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_what_was_altered_cut_or_moved_is_an_error_that_says_so(tmp_path, key, what):
    log = write(tmp_path / "log", key, some(TEXTS * 2))
    change, words = TAMPERED[what]
    changed(files(tmp_path / "log")[0], change)
    for read in (log.check, lambda: list(log.lines()), log.to_dataset):
        with pytest.raises(QueryLogError, match=words):
            read()


def test_lines_of_another_log_do_not_fit_and_neither_does_a_file_under_another_name(tmp_path, key):
    one, other = (write(tmp_path / name, key, some()) for name in ("one", "other"))
    (mine,), (theirs,) = files(one.folder), files(other.folder)
    foreign = theirs.read_bytes().splitlines(keepends=True)
    sound = mine.read_bytes()
    changed(mine, lambda lines: [*lines[:2], foreign[2], *lines[3:]])
    with pytest.raises(QueryLogError, match="is of another log"):
        one.check()
    mine.write_bytes(b"".join(foreign))
    with pytest.raises(QueryLogError, match="another chain"):
        one.check()
    mine.write_bytes(sound)
    assert one.check().lines == 3


def test_an_end_that_was_cut_off_or_a_run_that_was_deleted_is_seen_by_the_next_run(tmp_path, key):
    log = write(tmp_path / "log", key, some())
    (first,) = files(log.folder)
    write(log.folder, key, some())
    sound = first.read_bytes()
    changed(first, lambda lines: lines[:-1])
    with pytest.raises(QueryLogError, match="the end was cut off"):
        log.check()
    first.unlink()
    with pytest.raises(QueryLogError, match="files were lost"):
        log.check()
    first.write_bytes(sound)
    assert log.check().chains == 2


def test_a_file_in_the_middle_that_is_gone_is_missed(tmp_path, key):
    log = write(tmp_path / "log", key, some([f"text {n}" for n in range(20)]), largest_file=2000)
    files(log.folder)[1].unlink()
    with pytest.raises(QueryLogError, match="is missing from the log"):
        log.check()


@settings(max_examples=30)
@given(st.data())
def test_a_log_that_is_cut_anywhere_loses_the_end_and_no_more(tmp_path_factory, key, data):
    """As a crash of the machine may do to a file that was not synced: what is before stays readable."""
    folder = tmp_path_factory.mktemp("cut") / "log"
    log = write(folder, key, some())
    (path,) = files(folder)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    n_whole = max(0, path.read_bytes().count(b"\n") - 1)
    assert [line.text for line in log.lines()] == TEXTS[:n_whole]


# -- roots of days


def test_the_root_of_a_day_fixes_its_lines_and_each_can_be_shown_to_be_under_it(tmp_path, key, clock):
    log = write(tmp_path / "log", key, some())
    assert root_log(log.folder) == []  # the day is not over
    clock.on("2026-11-02")
    (day,) = root_log(log.folder)
    assert day.day == "2026-11-01" and day.lines == 4 and len(day.root) == 64
    assert root_log(log.folder) == [day]  # the same again
    checked = log.check()
    assert checked.days == [day] and checked.rooted == 4
    links = [json.loads(line)["link"] for line in files(log.folder)[0].read_bytes().splitlines()]
    leaves = merkle.in_order(b"".join(map(log_days.leaf_of, links))).tobytes()
    for place in range(4):
        leaf = leaves[32 * place : 32 * place + 32]
        root = merkle.root_from_path(leaf, place, 4, merkle.audit_path(leaves, place))
        assert merkle.bound_root(root, 4, log_days._ROOT) == day.root


def test_after_the_root_was_made_not_even_a_whole_new_chain_fits(tmp_path, key, clock):
    log = write(tmp_path / "log", key, some())
    clock.on("2026-11-02")
    root_log(log.folder)
    other = write(tmp_path / "other", key, some(["another text"]))
    (mine,), (theirs,) = files(log.folder), files(other.folder)
    mine.unlink()
    (log.folder / theirs.name).write_bytes(theirs.read_bytes())
    with pytest.raises(QueryLogError, match="not those of which the root"):
        log.check()


def test_a_root_of_today_fixes_what_there_is_by_now(tmp_path, key, clock):
    log = write(tmp_path / "log", key, some())
    (day,) = root_log(log.folder, "2026-11-01")
    write(log.folder, key, some(["later"]))
    assert log.check().rooted == day.lines == 4
    with pytest.raises(QueryLogError, match="has no lines of 2026-10-01"):
        root_log(log.folder, "2026-10-01")
    with pytest.raises(InvalidInputError, match="is no day"):
        root_log(log.folder, "soon")


@pytest.mark.parametrize(
    "change", [{"root": "0" * 64}, {"lines": 9}, {"files": []}, {"files": [[1, 2]]}, {"day": 7}], ids=str
)
def test_a_record_of_a_day_that_was_altered_is_refused(tmp_path, key, clock, change):
    log = write(tmp_path / "log", key, some())
    root_log(log.folder, "2026-11-01")
    (path,) = (log.folder / "days").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(QueryLogError, match=r"not those of which the root|names files|no record of a day"):
        log.check()


# -- retention, redaction, replicas


def test_days_that_are_too_old_go_and_what_is_left_can_still_be_checked(tmp_path, key, clock):
    log = QueryLog(tmp_path / "log")
    with log.writer(key, label_kind="hard") as writer:
        for day in (1, 2, 3, 4):
            clock.on(f"2026-11-0{day}")
            writer.append(some([f"day {day}", "again"])).result()
        clock.on("2026-11-05")
        writer.append(some(["day 5"])).result()
    (first,) = root_log(log.folder, "2026-11-01")
    gone = expire_log(log.folder, 2)
    assert [day.day for day in gone] == ["2026-11-01", "2026-11-02"]
    assert gone[0].root == first.root and gone[0].expired_at is not None
    assert [line.text for line in log.lines()] == ["day 3", "again", "day 4", "again", "day 5"]
    assert log.check().lines == 5 and expire_log(log.folder, 2) == []
    write(log.folder, key, some(["the next run"]))
    assert log.check().chains == 2
    for path in (log.folder / "days").iterdir():
        path.unlink()
    with pytest.raises(QueryLogError, match="no record says that it was expired"):
        log.check()


def test_a_whole_run_that_is_too_old_goes_though_later_ones_came_after_it(tmp_path, key, clock):
    log = write(tmp_path / "log", key, some())
    clock.on("2026-11-05")
    write(log.folder, key, some(["later"]))
    expire_log(log.folder, 1)
    assert log.check().lines == 1


def test_what_a_service_is_writing_is_neither_expired_nor_redacted(tmp_path, key, clock):
    log = QueryLog(tmp_path / "log")
    with log.writer(key, label_kind="hard") as writer:
        writer.append(some()).result()
        clock.on("2026-11-09")
        for upkeep in (lambda: expire_log(log.folder, 1), lambda: redact_log(log.folder)):
            with pytest.raises(QueryLogError, match="still writing"):
                upkeep()
    assert log.check().lines == 3


def test_what_was_added_while_texts_were_taken_out_is_not_lost(tmp_path, key, monkeypatch):
    """A service may end its file between the reading and the writing."""
    log = write(tmp_path / "log", key, some())
    (path,) = files(log.folder)
    added = path.read_bytes().splitlines(keepends=True)[-1]
    unused = log_days._unused

    def late(path, size):
        with open(path, "ab") as file:
            file.write(added)
        return unused(path, size)

    monkeypatch.setattr(log_days, "_unused", late)
    with pytest.raises(QueryLogError, match="still writing"):
        redact_log(log.folder)
    assert path.read_bytes().endswith(added)


def test_texts_taken_out_leave_the_chain_and_the_roots_as_they_are(tmp_path, ring, clock):
    log = write(tmp_path / "log", ring, [*some(user="ann"), *some(user="ben")])
    clock.on("2026-11-02")
    root_log(log.folder)
    assert redact_log(log.folder, user="ann") == 3 and redact_log(log.folder, user="ann") == 0
    checked = log.check()
    assert (checked.redacted, checked.rooted) == (3, 7)
    assert [line.text for line in log.select(user="ann").lines()] == [None] * 3
    assert [line.text for line in log.select(user="ben").lines()] == TEXTS
    assert redact_log(log.folder, before="2026-11-02", names=True) == 6
    content = files(log.folder)[0].read_text()
    assert not any(word in content for word in ("ann", "ben", "film")) and log.check().lines == 6
    assert stat.S_IMODE(files(log.folder)[0].stat().st_mode) == 0o600


def test_a_log_can_be_without_texts_and_names_from_the_start(tmp_path, ring):
    log = write(tmp_path / "log", ring, some(user="ann"), texts=False, users=False)
    content = files(log.folder)[0].read_text()
    assert "ann" not in content and "film" not in content
    assert [line.answered for line in log.select(key=ring.key_for("ann")).lines()] == [
        "negative",
        "positive",
        "negative",
    ]


def test_replicas_logs_are_put_together_and_say_all_that_each_said(tmp_path, ring, clock):
    one = write(tmp_path / "one", ring, some(user="ann"))
    other = write(tmp_path / "other", ring, some(["from the other"], user="ann"))
    clock.on("2026-11-02")
    root_log(one.folder), root_log(other.folder)
    assert merge_logs(tmp_path / "both", [one.folder, other.folder]) == 2
    both = QueryLog(tmp_path / "both")
    assert [line.text for line in both.lines()] == [*TEXTS, "from the other"]
    assert both.check().rooted == 6 and len(both.check().days) == 2
    write(one.folder, ring, some(["one more"], user="ann"))
    assert merge_logs(tmp_path / "both", [one.folder, other.folder]) == 1
    assert merge_logs(tmp_path / "both", [one.folder]) == 0
    assert both.check().lines == 5


def test_a_service_goes_on_writing_to_a_log_into_which_others_are_put(tmp_path, key, monkeypatch):
    log, other = QueryLog(tmp_path / "log"), write(tmp_path / "other", key, some(["from the other"]))
    take = log_days._take
    with log.writer(key, label_kind="hard") as writer:
        writer.append(some(["before"])).result()

        def late(*args):
            if len(list(log.lines())) == 1:
                writer.append(some(["meanwhile"])).result()
            take(*args)

        monkeypatch.setattr(log_days, "_take", late)
        assert merge_logs(log.folder, [other.folder]) == 1
        monkeypatch.setattr(log_days, "_take", take)
        writer.append(some(["afterwards"])).result()
        shutil.copytree(log.folder, tmp_path / "copy")
        redact_log(tmp_path / "copy")
        with pytest.raises(QueryLogError, match="still writing"):  # texts were taken out of the copy
            merge_logs(log.folder, [tmp_path / "copy"])
    assert sorted(line.text for line in log.lines()) == ["afterwards", "before", "from the other", "meanwhile"]


def test_days_that_were_removed_in_one_replica_stay_removed(tmp_path, key, clock):
    log = write(tmp_path / "log", key, some())
    clock.on("2026-11-03")
    root_log(log.folder)
    merge_logs(tmp_path / "both", [log.folder])
    write(log.folder, key, some(["later"]))
    expire_log(log.folder, 1)
    for order in ([log.folder, tmp_path / "both"], [tmp_path / "both", log.folder]):
        merge_logs(tmp_path / f"merged-{order[0].name}", order)
        assert QueryLog(tmp_path / f"merged-{order[0].name}").check().lines == 4
    merge_logs(tmp_path / "short", [log.folder])
    assert QueryLog(tmp_path / "short").check().lines == 1


def test_two_histories_of_one_chain_are_refused_and_what_was_taken_out_stays_out(tmp_path, key):
    one = write(tmp_path / "one", key, some())
    merge_logs(tmp_path / "copy", [one.folder])
    redact_log(one.folder)
    merge_logs(tmp_path / "both", [tmp_path / "copy", one.folder])
    assert QueryLog(tmp_path / "both").check().redacted == 3
    (path,) = files(one.folder)
    lines = path.read_bytes().splitlines(keepends=True)
    document = json.loads(lines[-1])
    document["answered"] = "positive"
    document["link"] = log_lines.link_of(json.loads(lines[-2])["link"], document)
    path.write_bytes(b"".join(lines[:-1]) + log_lines.as_line(document))
    assert one.check().lines == 3  # it holds together, as whoever holds the log can always make it
    with pytest.raises(QueryLogError, match="do not say the same"):
        merge_logs(tmp_path / "more", [tmp_path / "copy", one.folder])


def test_where_there_is_no_log_it_says_so(tmp_path):
    with pytest.raises(QueryLogError, match="there is no query log in"):
        QueryLog(tmp_path / "nowhere").check()
    with pytest.raises(QueryLogError, match="there is no query log in"):
        list(QueryLog(tmp_path / "nowhere").lines())


# -- what a test takes of it


def test_a_key_gets_what_was_answered_under_it_each_text_once(tmp_path, ring):
    log = write(tmp_path / "log", ring, [*some(user="ann"), *some(user="ann"), *some(["bens"], user="ben")])
    questions, served, _ = log.asked_under(ring.key_for("ann"))
    assert questions == TEXTS and served == ["negative", "positive", "negative"]
    assert log.asked_under(ring.key_for("ben"))[:2] == (["bens"], ["negative"])
    with pytest.raises(QueryLogError, match="holds nothing that was answered under the key"):
        log.asked_under(ring.key_for("eve"))


def test_soft_answers_and_pairs_and_words(tmp_path, key, caplog):
    pairs, texts = [Served(["a", "b"], [0.5, 0.5])], [Served("c", [0.1, 0.9]), Served("d", [0.2, 0.8])]
    assert write(tmp_path / "pairs", key, pairs, label_kind="soft").asked_under(key)[:2] == ([("a", "b")], None)
    mixed = write(tmp_path / "mixed", key, pairs + texts, label_kind="soft")  # one kind is tested, the frequent one
    assert mixed.asked_under(key)[:2] == (["c", "d"], None) and "holds 2 texts and 1 pairs" in caplog.text
    tagger = make_key(make_model("token-classification"))
    tags = write(tmp_path / "tags", tagger, [Served("ann saw  it", ["B-PER", "O", None])])
    assert tags.asked_under(tagger)[:2] == ([["ann", "saw", "it"]], [["B-PER", "O", None]])


def test_without_the_texts_they_are_asked_for_again_and_checked(tmp_path, key):
    log = write(tmp_path / "log", key, some(), texts=False)
    with pytest.raises(QueryLogError, match="of 3 of the 3 texts"):
        log.asked_under(key)
    assert log.asked_under(key, reversed(TEXTS))[:2] == (TEXTS, ["negative", "positive", "negative"])
    with pytest.raises(QueryLogError, match="1 of the texts are not in the log"):
        log.asked_under(key, [*TEXTS, "never asked"])


def test_a_line_that_somebody_without_the_key_put_there_is_seen(tmp_path, key):
    """Whoever can write to the log can make a chain that holds together; but not what only the key gives."""
    log = write(tmp_path / "log", key, some())
    stranger = log_lines.LogKey(key.commitment(), b"\x07" * 32)
    (path,) = files(log.folder)
    last = json.loads(path.read_bytes().splitlines()[-1])
    made_up = log_lines.document_of(Served("made up", "negative"), stranger, 4, last["at"], last["link"])
    with open(path, "ab") as file:
        file.write(log_lines.as_line(made_up))
    assert log.check().lines == 4
    with pytest.raises(QueryLogError, match="was not written with it"):
        log.asked_under(key)


@pytest.mark.parametrize("answered", ["neither", ["negative"], None, [0.5, 0.5], 7, {}])
def test_an_answer_that_is_none_is_refused(tmp_path, key, answered):
    log = write(tmp_path / "log", key, [Served("dull", answered)])
    with pytest.raises(QueryLogError, match="holds no answer"):
        list(log.lines())


NO_SCORES = [[0.5], [0.5, "0.5"], [0.9, 0.9], [float("nan"), 0.5], [10**400, 0], "negative", None]


@pytest.mark.parametrize("answered", NO_SCORES, ids=range(len(NO_SCORES)))
def test_scores_that_are_none_are_refused(tmp_path, key, answered):
    log = write(tmp_path / "log", key, [Served("dull", answered)], label_kind="soft")
    with pytest.raises(QueryLogError, match="holds no answer"):
        list(log.lines())


def test_reprs_show_no_key(key):
    assert repr(log_lines.LogKey.of(key)) == f"LogKey({key.fingerprint})"
    assert (
        repr(QueryLog("log").select(key=key, user="ann")) == f"QueryLog('log', user='ann', key='{key.commitment()}')"
    )
