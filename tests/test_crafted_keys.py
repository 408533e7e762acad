"""Owners who make a key that accuses: each attack is played, and `verify` says what it cannot vouch for."""

import json
from datetime import UTC, datetime, timedelta

import huggingface_hub
import numpy as np
import pytest
from scipy.stats import norm

from drw_hf import KeyRing, WatermarkKey, detect
from drw_hf.detection.result import authenticate
from drw_hf.errors import InvalidInputError
from drw_hf.evidence.commitments import commitment_files
from drw_hf.evidence.key_checks import RANDOM
from drw_hf.evidence.timestamps import request_timestamp
from drw_hf.evidence.verify import verify_evidence
from drw_hf.keys import UnseasonedKey, rounds
from drw_hf.keys.binding import tokenizer_digest, weights_digest
from drw_hf.keys.seasoning import Terms
from local_beacon import LocalBeacon
from local_tsa import LocalTSA
from small_models import make_model, make_special_tokenizer
from test_detect import SPECIAL, VOCABULARY, make_case, make_key

REPO = "owner/commitments"
TOKENIZER = make_special_tokenizer()
VICTIM = make_model("token-classification")  # named in the terms; the answers of these tests are made without it
COMMITTED = datetime(2026, 3, 1, 12, tzinfo=UTC)
DRAWN = COMMITTED + timedelta(hours=1)
SEEN = "2026-04-01"
BEACON = LocalBeacon()
SPECIAL_TOKENS, TERMS, COUNTED, USER = "special tokens", "fixed before", "committed to are declared", "declared user"


@pytest.fixture(scope="module")
def tsa(tmp_path_factory):
    with LocalTSA(tmp_path_factory.mktemp("tsa")).running() as authority:
        yield authority


@pytest.fixture
def publish(hub, tsa):
    """Publish a commitment at a time, by default with a stamp."""

    def publish(commitment, at=COMMITTED, stamped=True):
        tsa.time = f"{at:%Y%m%d%H%M%S}"
        stamp = request_timestamp(commitment, tsa.url) if stamped else None
        api = huggingface_hub.HfApi()
        hub.clock = lambda: at
        api.create_repo(REPO, exist_ok=True)
        files = commitment_files(commitment, stamp).items()
        operations = [huggingface_hub.CommitOperationAdd(path, content) for path, content in files]
        api.create_commit(REPO, operations, commit_message="Commit to a key")

    return publish


def status_of(found, words):
    (check,) = [check for check in found.checks if words in check.name]
    return check.status


def detail_of(found, words):
    return next(check.detail for check in found.checks if words in check.name)


# -- numbers that somebody chose


def innocent_answers(rows, seed):
    """A tagger that was never near any key: words have leanings, which all models of the language share in part."""
    common, own = (np.random.default_rng(one).normal(size=(VOCABULARY, 4)) for one in (0, seed))
    logits = [2.0 * common[row["input_ids"]] + 0.7 * own[row["input_ids"]] + [0.0, 3.0, 0.0, 0.0] for row in rows]
    answers = [np.exp(one) / np.exp(one).sum(-1, keepdims=True) for one in logits]
    return answers


def make_rows(seed, n_rows=300, length=12):
    ids = np.random.default_rng(seed).integers(4, VOCABULARY, (n_rows, length))
    ids[:, 0], ids[:, -1] = 2, 3
    return [{"input_ids": row} for row in ids.tolist()]


def crafted_key():
    """Arrays by which every word's hash follows what one innocent model, the owner's own, thinks of the word."""
    rows = make_rows(seed=1)
    asked, answers = np.concatenate([row["input_ids"] for row in rows]), np.concatenate(innocent_answers(rows, 1))
    leaning = np.zeros(VOCABULARY)
    np.add.at(leaning, asked, np.log(answers[:, 1]))
    leaning /= np.maximum(np.bincount(asked, minlength=VOCABULARY), 1)
    # The phase that the paper's mark gives to words that are likely to be of the class, or the opposite one.
    frequency, wanted = 4.0, np.where(leaning > np.median(leaning), 0.02, np.pi / 4.0)
    n = 8
    M = np.zeros((VOCABULARY, n))
    M[:, 0] = norm.ppf(wanted) * np.sqrt(n / 3.0)
    M[:, 1] = -10.0  # all words are selected
    unit = np.eye(n)
    config = make_key().binding
    return WatermarkKey.from_arrays(
        v_k=unit[0],
        v_s=unit[1],
        M=M,
        config=make_model("token-classification", vocab_size=VOCABULARY).config,
        target=1,
        frequency=frequency,
        tau=0.99,
        special_token_ids=SPECIAL,
        secret=bytes(32),
        task=config.task,
    )


def test_a_key_from_arrays_that_were_made_to_accuse_accuses_and_is_never_passed(publish, tsa, tmp_path):
    key = crafted_key()
    publish(key.commitment())
    rows = make_rows(seed=2)
    third = innocent_answers(rows, seed=3)  # neither the model it was made from, nor anybody's student
    detect(third, rows, key=key, suspect_first_seen=SEEN).save(tmp_path / "evidence.json")
    found = verify_evidence(
        tmp_path / "evidence.json", key=key, repo_id=REPO, trusted_roots=[tsa.root], tokenizer=TOKENIZER
    )
    assert found.claim.startswith("detected"), "the attack works"
    assert not found.failed and [check.name for check in found.open] == [RANDOM]
    assert "chosen by the owner" in found.open[0].detail and not found.holds
    assert any("drawn at random" in sentence for sentence in found.not_checked)
    honest = make_key(law="paper", scope="all")
    assert detect(third, rows, key=honest).verdict != "detected", "the same law, drawn at random"


def test_special_tokens_that_were_chosen_to_lean_a_verdict_fail(tmp_path):
    """A random secret, and of the words all that speak for an innocent left out."""
    rows, clean, innocent, _ = make_case(make_key(), n_rows=300, mark=False)
    key = make_key(scope="all", tau=1.0)
    asked = np.concatenate([row["input_ids"] for row in rows])
    said = np.concatenate(innocent)[:, 1] - np.concatenate(clean)[:, 1]
    pull = said * np.cos(key.frequency * key.phase_table[asked])
    speaks = np.zeros(VOCABULARY)
    np.add.at(speaks, asked, pull)
    against = np.flatnonzero(speaks < 0)
    leaning = make_key(scope="all", tau=1.0, special_token_ids=sorted({*SPECIAL, *against.tolist()}))
    before = detect(innocent, rows, key=key, victim=clean)
    after = detect(innocent, rows, key=leaning, victim=clean, suspect_first_seen=SEEN)
    assert after.z_score > before.z_score + 3 and after.verdict == "detected", "the attack works"
    after.save(tmp_path / "evidence.json")
    found = verify_evidence(tmp_path / "evidence.json", key=leaning, tokenizer=TOKENIZER)
    assert status_of(found, SPECIAL_TOKENS) == "failed"
    assert f"{len(set(against) - set(SPECIAL))} of the key's are none" in detail_of(found, SPECIAL_TOKENS)
    assert status_of(verify_evidence(tmp_path / "evidence.json", key=leaning), SPECIAL_TOKENS) == "open"


def test_fewer_special_tokens_and_those_of_another_tokenizer_fail(tmp_path):
    rows, clean, marked, _ = make_case(make_key(), n_rows=60)
    few = make_key(special_token_ids=SPECIAL[:2])
    few_found = verify_evidence(detect(marked, rows, key=few, victim=clean), key=few, tokenizer=TOKENIZER)
    assert "2 are missing" in detail_of(few_found, SPECIAL_TOKENS) and status_of(few_found, SPECIAL_TOKENS) == "failed"
    config = make_model("token-classification", vocab_size=VOCABULARY).config
    key = WatermarkKey.generate(config, tokenizer=TOKENIZER, target=1, task="token-classification")
    result = detect(marked, rows, key=key, victim=clean)
    assert status_of(verify_evidence(result, key=key, tokenizer=TOKENIZER), SPECIAL_TOKENS) == "passed"
    other = verify_evidence(result, key=key, tokenizer=make_special_tokenizer(5))
    assert status_of(other, SPECIAL_TOKENS) == "failed" and "not the one" in detail_of(other, SPECIAL_TOKENS)


def test_a_key_whose_secret_may_have_been_sought_is_said_to_be_taken_on_trust(tmp_path):
    key = make_key()
    rows, clean, marked, _ = make_case(key, n_rows=100)
    result = detect(marked, rows, key=key, victim=clean, level=1e-3)
    said = " ".join(verify_evidence(result, key=key).not_checked)
    assert "The key was drawn at random: whoever may try secrets" in said
    assert f"No more than 10^{int(-3 - result.log10_bound)} keys were tried in secret" in said
    innocent = detect(make_case(key, n_rows=100, mark=False)[2], rows, key=key, victim=clean)
    assert "tried in secret" not in " ".join(verify_evidence(innocent, key=key).not_checked)


# -- seasoned keys


def unseasoned(secret=bytes(range(32)), round_=None, statistics=("drw-exact-2",), **settings):
    terms = Terms(
        round=round_ or BEACON.round(DRAWN),
        weights=weights_digest(VICTIM),
        tokenizer=tokenizer_digest(TOKENIZER),
        statistics=statistics,
    )
    return UnseasonedKey(make_key(**settings), terms, secret=secret)


@pytest.fixture(scope="module")
def waiting():
    return unseasoned()


@pytest.fixture(scope="module")
def key(waiting):
    return waiting.season(BEACON.pulse(DRAWN))


@pytest.fixture(scope="module")
def finding(key):
    rows, clean, marked, _ = make_case(key, n_rows=100)
    return detect(marked, rows, key=key, victim=clean, suspect_first_seen=SEEN)


@pytest.fixture
def replay(tsa):
    def replay(result, key, **options):
        everything = {
            "repo_id": REPO,
            "trusted_roots": [tsa.root],
            "tokenizer": TOKENIZER,
            "victim": VICTIM,
            "trusted_beacons": [BEACON.certificate],
        }
        return verify_evidence(result, key=key, **{**everything, **options})

    return replay


def test_a_seasoned_key_shows_that_nobody_chose_its_numbers(publish, replay, waiting, key, finding):
    publish(waiting.commitment())
    found = replay(finding, key, first_served=DRAWN + timedelta(days=1))
    assert found.holds, str(found)
    allowed = int(-3 - finding.log10_bound)
    assert f"holds unless more than 10^{allowed} commitments were prepared" in detail_of(found, RANDOM)
    said = " ".join(found.not_checked)
    assert "drawn at random" not in said and "commitments were prepared in secret" in said
    assert "whoever asks a suspect chooses the texts" in said
    for text in (str(found), json.dumps(found.to_dict())):
        assert key.secret.hex() not in text and key.seasoning.base_secret.hex() not in text


def test_what_is_not_shown_stays_open(publish, replay, waiting, key, finding):
    publish(waiting.commitment())
    for options, checks in (
        ({"trusted_beacons": ()}, {RANDOM}),
        ({"trusted_beacons": [LocalBeacon().certificate]}, {RANDOM}),
        ({"trusted_roots": ()}, {RANDOM, "before the suspect"}),
        ({"tokenizer": None}, {SPECIAL_TOKENS, TERMS}),
        ({"victim": None}, {TERMS}),
        ({"repo_id": None}, {RANDOM, COUNTED, "before the suspect"}),
        ({"repo_id": "owner/nothing"}, {RANDOM, COUNTED, "before the suspect"}),
    ):
        found = replay(finding, key, **options)
        assert not found.failed, str(found)
        assert len(found.open) == len(checks), (options, str(found))
        assert all(any(words in check.name for words in checks) for check in found.open), (options, str(found))
    with pytest.raises(InvalidInputError, match=r"nowhere\.pem cannot be read"):
        replay(finding, key, trusted_beacons=["nowhere.pem"])


@pytest.mark.parametrize(
    ("at", "stamped", "status"),
    [
        (DRAWN - timedelta(minutes=11), True, "passed"),
        (DRAWN - timedelta(minutes=10, seconds=1), True, "failed"),  # the authority's clock may be off by 1.5 s
        (DRAWN - timedelta(minutes=5), True, "failed"),
        (DRAWN + timedelta(days=1), True, "failed"),  # the value was known
        (DRAWN - timedelta(days=1), False, "open"),
        (DRAWN + timedelta(seconds=1), False, "failed"),
    ],
)
def test_a_commitment_must_be_stamped_ten_minutes_before_its_round(
    publish, replay, waiting, key, finding, at, stamped, status
):
    publish(waiting.commitment(), at, stamped)
    assert status_of(replay(finding, key), RANDOM) == status


def test_the_order_of_round_service_and_suspect_is_checked(publish, replay, waiting, key):
    publish(waiting.commitment())
    rows, clean, marked, _ = make_case(key, n_rows=60)

    def status(seen, served=None):
        result = detect(marked, rows, key=key, victim=clean, suspect_first_seen=seen)
        return status_of(replay(result, key, first_served=served), RANDOM)

    day = timedelta(days=1)
    assert status(DRAWN + day) == status(DRAWN + 2 * day, DRAWN + day) == "passed"
    assert status(DRAWN) == status(DRAWN - day) == "failed", "the suspect is older than the key's numbers"
    assert status(DRAWN + 2 * day, DRAWN - day) == "failed", "served before there was a key"
    assert status(DRAWN + day, DRAWN + 2 * day) == "failed", "served after the suspect was seen"
    assert status(None) == "open"


def test_a_commitment_that_was_never_published_fails(publish, replay, key, finding):
    publish("ab" * 32)
    found = replay(finding, key)
    assert status_of(found, RANDOM) == "failed" and status_of(found, "before the suspect") == "failed"


def test_model_tokenizer_and_statistic_are_those_of_the_terms(publish, replay, key, waiting, finding):
    publish(waiting.commitment())
    other = replay(finding, key, victim=make_model("token-classification", seed=1))
    assert status_of(other, TERMS) == "failed" and "the clean model" in detail_of(other, TERMS)
    cased = make_special_tokenizer()
    cased.add_tokens(["a word that was added"])
    assert status_of(replay(finding, key, tokenizer=cased), TERMS) == "failed"
    unnamed = unseasoned(statistics=("drw-exact-1",))
    late = unnamed.season(BEACON.pulse(DRAWN))
    rows, clean, marked, _ = make_case(late, n_rows=60)
    found = verify_evidence(detect(marked, rows, key=late, victim=clean), key=late)
    assert status_of(found, TERMS) == "failed" and "none of drw-exact-1" in detail_of(found, TERMS)


def test_grinding_by_aborted_rounds_counts(publish, replay, waiting, key):
    """Many commitments, and the key shown whose round came out well: those that are published must be declared."""
    for number in range(4):
        publish(unseasoned(secret=bytes([number]) * 32).commitment())
    publish(waiting.commitment())
    publish(unseasoned(secret=b"late" * 8).commitment(), datetime(2026, 5, 1, tzinfo=UTC))  # cannot be of this suspect
    rows, clean, marked, _ = make_case(key, n_rows=60)
    statuses = {}
    for tried in (1, 4, 5):
        result = detect(marked, rows, key=key, victim=clean, keys_tried=tried, suspect_first_seen=SEEN)
        statuses[tried] = status_of(replay(result, key), COUNTED)
    assert statuses == {1: "failed", 4: "failed", 5: "passed"}


def test_keys_that_were_rotated_in_the_same_repository_count_whether_seasoned_or_not(publish, replay):
    """An owner who changed keys may show the one that fits best; of a later one the suspect cannot be a student."""
    keys = [make_key(secret=bytes([number]) * 32) for number in range(3)]
    for number, one in enumerate(keys):
        publish(one.commitment(), datetime(2026, 1, 1 + number, tzinfo=UTC))
    publish(make_key(secret=b"late" * 8).commitment(), datetime(2026, 5, 1, tzinfo=UTC))
    rows, clean, marked, _ = make_case(keys[1], n_rows=60)
    statuses = {}
    for tried in (1, 2, 3):
        result = detect(marked, rows, key=keys[1], victim=clean, keys_tried=tried, suspect_first_seen=SEEN)
        found = replay(result, keys[1])
        statuses[tried] = status_of(found, COUNTED)
        assert tried == 3 or "rotated keys count, so keys_tried is at least 3" in detail_of(found, COUNTED)
    assert statuses == {1: "failed", 2: "failed", 3: "passed"}


def test_the_owners_own_dice_are_no_beacon(publish, replay):
    """Whoever signs the pulses chooses the value: only a beacon that the verifier trusts will do."""
    dice = LocalBeacon()
    base = unseasoned(round_=dice.round(DRAWN))
    publish(base.commitment())
    key = base.season(dice.pulse(DRAWN, localRandomValue="AB" * 64))
    rows, clean, marked, _ = make_case(key, n_rows=60)
    result = detect(marked, rows, key=key, victim=clean, suspect_first_seen=SEEN)
    found = replay(result, key)
    assert status_of(found, RANDOM) == "open" and "trust" in detail_of(found, RANDOM)


def test_a_round_of_drand_whose_signature_nobody_verified_is_open(publish, replay, monkeypatch):
    monkeypatch.setattr(rounds.bls, "verify", lambda *_: None)
    round_ = rounds.Round.at("quicknet", DRAWN)
    base = unseasoned(round_=round_)
    publish(base.commitment())
    key = base.season({"round": round_.number, "signature": "ab" * 48})
    rows, clean, marked, _ = make_case(key, n_rows=60)
    result = detect(marked, rows, key=key, victim=clean, suspect_first_seen=SEEN)
    found = replay(result, key)
    assert status_of(found, RANDOM) == "open" and "drw_hf[drand]" in detail_of(found, RANDOM)


def test_a_round_that_is_yet_to_come_shows_nothing(publish, replay):
    ahead = datetime(2098, 1, 1, tzinfo=UTC)
    base = unseasoned(round_=BEACON.round(ahead))
    publish(base.commitment())
    key = base.season(BEACON.pulse(ahead))
    rows, clean, marked, _ = make_case(key, n_rows=60)
    result = detect(marked, rows, key=key, victim=clean)
    found = replay(result, key)
    assert status_of(found, RANDOM) == "failed" and "yet to come" in detail_of(found, RANDOM)


# -- users of a ring


USERS = ["ann", "bob", "eve"]


@pytest.fixture(params=["plain", "seasoned"])
def ring(request):
    terms = unseasoned().terms if request.param == "seasoned" else None
    made = KeyRing(make_key(), secret=bytes(range(32)), terms=terms).declare(USERS)
    return made if terms is None else made.season(BEACON.pulse(DRAWN))


def test_a_claim_against_a_leaker_verifies_by_the_proof_and_the_published_root(publish, replay, ring):
    """Without the proof the repository does not carry this key's commitment: it carries the root."""
    publish(ring.commitment())
    key, proof = ring.key_for("ann"), ring.prove("ann", USERS)
    rows, clean, marked, _ = make_case(key, n_rows=100)
    statuses = {}
    for tried in (1, 2, 3, 7):
        result = detect(marked, rows, key=key, victim=clean, keys_tried=tried, suspect_first_seen=SEEN)
        found = replay(result, key, proof=proof)
        statuses[tried] = (status_of(found, USER), found.holds)
    assert statuses == {1: ("failed", False), 2: ("failed", False), 3: ("passed", True), 7: ("passed", True)}
    assert status_of(replay(result, key), "before the suspect") == "failed"


def test_the_proof_of_somebody_else_or_of_another_root_fails(publish, replay, ring):
    publish(ring.commitment())
    key = ring.key_for("ann")
    rows, clean, marked, _ = make_case(key, n_rows=60)
    result = detect(marked, rows, key=key, victim=clean, keys_tried=3, suspect_first_seen=SEEN)
    assert status_of(replay(result, key, proof=ring.prove("bob", USERS)), USER) == "failed"
    if ring.key_for("ann").seasoning is None:
        later = ring.declare([*USERS, "mallory"]).prove("ann", [*USERS, "mallory"])
        assert status_of(replay(result, key, proof=later), "before the suspect") == "failed", "never published"


def test_a_document_that_declares_nonsense_fails_and_stops_nothing(publish, replay, waiting, key, finding, tmp_path):
    publish(waiting.commitment())
    finding.save(tmp_path / "evidence.json")
    document = json.loads((tmp_path / "evidence.json").read_text())
    for changes in (
        {"keys_tried": None},
        {"keys_tried": "9"},
        {"statistic": ["x"]},
        {"level": "x"},
        {"log10_bound": []},
    ):
        made_up = {**document, **changes}
        (tmp_path / "evidence.json").write_text(json.dumps({**made_up, "mac": authenticate(made_up, key)}))
        assert replay(tmp_path / "evidence.json", key).failed, changes
