"""Files that were made to fill their reader's memory: refused, by a limit that is named, before they do."""

import io
import json
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from drw_hf import WatermarkKey
from drw_hf.detection import DetectionResult, Probe
from drw_hf.errors import DrwError, InvalidInputError, InvalidKeyError, KeyFileError, KeyTooLargeError
from drw_hf.hub.pull import Pointer
from drw_hf.keys import files
from drw_hf.keys.sealing import canonical
from drw_hf.reading.arrays import read_arrays
from small_models import make_key, make_model

MEBIBYTE = 2**20


def npy(array, shape=None):
    """An array as numpy writes it; ``shape`` is what the header says, if not the truth."""
    header = np.lib.format.header_data_from_array_1_0(array) | ({} if shape is None else {"shape": shape})
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + array.tobytes()


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def read(path, most=MEBIBYTE):
    return read_arrays(path, ["x", "y"], "a probe", InvalidInputError, most)


def taken_by(function):
    """The error a call raises, and the most memory that it took."""
    tracemalloc.start()
    try:
        with pytest.raises(DrwError) as caught:
            function()
        return str(caught.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# -- archives of arrays


def test_arrays_come_back_as_numpy_wrote_them(tmp_path):
    x, y = np.arange(6.0, dtype=np.float32).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))
    np.savez_compressed(tmp_path / "a.npz", x=x, y=y, other=x)
    found = read(tmp_path / "a.npz")
    assert found.keys() == {"x", "y"} and found["x"].dtype == np.float32
    np.testing.assert_array_equal(found["x"], x)
    np.testing.assert_array_equal(found["y"], y)


def test_an_archive_that_unpacks_beyond_the_limit_is_refused_before_it_does(tmp_path):
    path = archive(tmp_path / "bomb.npz", x=npy(np.zeros(2**21)))
    assert path.stat().st_size < MEBIBYTE / 10
    told, memory = taken_by(lambda: read(path))
    assert "1 MiB" in told and memory < 2 * MEBIBYTE


def test_all_members_share_one_limit(tmp_path):
    half = np.zeros(3 * MEBIBYTE // 4, np.uint8)
    assert read(archive(tmp_path / "one.npz", x=npy(half))).keys() == {"x"}
    assert "1 MiB" in taken_by(lambda: read(archive(tmp_path / "two.npz", x=npy(half), y=npy(half))))[0]


@pytest.mark.parametrize("shape", [(2**17,), (10**15,), (0,), (-1, -1), (2**40, 2**40), (1.5,), None], ids=str)
def test_a_header_that_lies_about_the_size_is_refused(tmp_path, shape):
    path = archive(tmp_path / "a.npz", x=npy(np.zeros(2**20), shape or (1,)))  # 8 MiB
    told, memory = taken_by(lambda: read(path))
    assert ("not a probe" in told or "1 MiB" in told) and memory < 4 * MEBIBYTE


def test_a_header_that_promises_more_than_there_is_takes_no_memory_for_it(tmp_path):
    path = archive(tmp_path / "a.npz", x=npy(np.zeros(1), (2**27,)))
    told, memory = taken_by(lambda: read(path, most=2**31))
    assert "not a probe" in told and memory < 3 * MEBIBYTE


def test_an_archive_with_a_long_list_of_members_is_refused(tmp_path):
    members = {f"member {number}": b"" for number in range(100)}
    assert "not a probe" in taken_by(lambda: read(archive(tmp_path / "many.npz", **members)))[0]
    plain = archive(tmp_path / "few.npz", x=npy(np.zeros(1))).read_bytes()
    second = b"PK\6\7" + bytes(16)  # where to find the directory of an archive beyond 4 GiB
    (tmp_path / "second.npz").write_bytes(plain[:-22] + second + plain[-22:])
    assert "not a probe" in taken_by(lambda: read(tmp_path / "second.npz"))[0]


@pytest.mark.parametrize("packed", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_packed_by_other_means_is_refused(tmp_path, packed):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", packed) as file:
        file.writestr("x.npy", npy(np.zeros(1)))
    with pytest.raises(InvalidInputError, match="not a probe"):
        read(tmp_path / "a.npz")


def test_objects_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([print], dtype=object))
    with pytest.raises(InvalidInputError, match="not a probe"):
        read(tmp_path / "a.npz")


def test_a_probe_that_was_made_to_unpack_without_end_is_refused_by_name(tmp_path):
    path = archive(tmp_path / "a.npz", fields=npy(np.zeros(1, np.uint8)), suspect=npy(np.zeros(1), (2**28, 2)))
    told, memory = taken_by(lambda: Probe.load(path))
    assert "1,024 MiB" in told and str(path) in told and memory < MEBIBYTE


def test_one_long_text_among_many_is_not_padded_to_for_all(tmp_path):
    """2,048 texts at once, padded to the longest, would be 6 GiB here."""
    n, long = 2_048, 400_000
    lengths = np.where(np.arange(n) == 7, long, 3)
    probe = Probe(
        task="sequence-classification",
        labels=("negative", "positive"),
        input_ids=np.full(lengths.sum(), 9),
        token_type_ids=np.zeros(lengths.sum(), np.int64),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        rows=np.arange(n),
        places=np.full(n, -1),
        suspect=np.full((n, 2), 0.5, np.float32),
    )
    key = make_key(make_model())
    tracemalloc.start()
    try:
        tokens, exists = probe.tokens_of(key)
        assert tracemalloc.get_traced_memory()[1] < 1_000 * MEBIBYTE  # numpy's arrays; torch's are not traced
    finally:
        tracemalloc.stop()
    assert exists.all() and (tokens == 9).all()


# -- keys


def signed(document):
    """A plain key file whose digest is right, as anybody can make one."""
    unsigned = {name: value for name, value in document.items() if name != "digest"}
    return json.dumps({**unsigned, "digest": files._digest(canonical(unsigned))})


@pytest.mark.parametrize(("field", "value"), [("dimension", 10**8), ("vocab_size", 10**12)])
def test_a_key_file_that_asks_for_too_much_names_the_limit(tmp_path, field, value):
    key = make_key(make_model(), law="paper", dimension=7)
    key.save_pretrained(tmp_path)
    path = tmp_path / "drw_key.json"
    document = json.loads(path.read_text())
    document["key"][field] = value
    path.write_text(signed(document))
    told, memory = taken_by(lambda: WatermarkKey.from_pretrained(tmp_path))
    assert field in told and "larger than 16," in told and memory < MEBIBYTE
    assert str(value) not in told and f"{value:,}" not in told


def test_nor_is_such_a_key_made():
    with pytest.raises(KeyTooLargeError, match="16,384") as caught:
        make_key(make_model(), law="paper", dimension=2**14 + 1)
    assert isinstance(caught.value, InvalidKeyError) and isinstance(caught.value, KeyFileError)
    assert make_key(make_model(), law="paper", dimension=2**14).dimension == 2**14


LARGE_FILES = {
    "drw_key.json": WatermarkKey.from_pretrained,
    "drw_key_pointer.json": Pointer.read,
    "evidence.json": DetectionResult.load,
}


@pytest.mark.parametrize("name", LARGE_FILES)
def test_a_file_is_read_up_to_its_limit(tmp_path, name):
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(2**33)  # it takes no room on the disk
    told, memory = taken_by(lambda: LARGE_FILES[name](path))
    assert "MiB, the most that is read" in told and memory < 100 * MEBIBYTE


def test_a_file_without_an_end_is_read_up_to_its_limit(tmp_path):
    (tmp_path / "drw_key.json").symlink_to("/dev/zero")
    assert "16 MiB" in taken_by(lambda: WatermarkKey.from_pretrained(tmp_path))[0]


def test_so_is_the_arrays_file_of_a_key(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    key = WatermarkKey.from_arrays(
        v_k=rng.random(8),
        v_s=rng.random(8),
        M=rng.random((64, 8)),
        config=make_model(),
        target=1,
        special_token_ids=[],
    )
    key.save_pretrained(tmp_path)
    with (tmp_path / "drw_key.safetensors").open("r+b") as file:
        file.truncate(2**34)
    assert "1,024 MiB" in taken_by(lambda: WatermarkKey.from_pretrained(tmp_path))[0]
    monkeypatch.setattr(files, "LARGEST_ARRAYS", 1_000)
    assert "1,000 bytes" in taken_by(lambda: key.save_pretrained(tmp_path / "new"))[0]
    assert not (tmp_path / "new").exists()


def test_a_safetensors_header_cannot_make_its_reader_allocate(tmp_path):
    key = make_key(make_model())
    key.save_pretrained(tmp_path)
    header = json.dumps({"M": {"dtype": "F64", "shape": [10**9, 10], "data_offsets": [0, 8 * 10**10]}}).encode()
    content = struct.pack("<Q", len(header)) + header
    (tmp_path / "drw_key.safetensors").write_bytes(content)
    path = tmp_path / "drw_key.json"
    document = json.loads(path.read_text())
    document["key"]["arrays_digest"] = files._digest(content)
    path.write_text(signed(document))
    told, memory = taken_by(lambda: WatermarkKey.from_pretrained(tmp_path))
    assert "damaged" in told and memory < MEBIBYTE
