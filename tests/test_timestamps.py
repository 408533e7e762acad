"""Time stamps of a commitment: asked of a real authority over HTTP, verified by us and by openssl alike."""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from drw_hf.errors import InvalidInputError, TimestampError
from drw_hf.evidence.timestamps import Timestamp, request_timestamp, verify_timestamp
from local_tsa import OPENSSL, LocalTSA

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="the authority of these tests needs the openssl program")
pytest.importorskip("rfc3161_client", reason="time stamps need the extra drw_hf[timestamp]")

COMMITMENT = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
SHA256 = bytes.fromhex("300d06096086480165030402010500")  # the algorithm, as DER has it
STAMPS = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.TIME_STAMPING])


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """An authority that nobody trusts, with the very names of the other."""
    return LocalTSA(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def token(authority):
    return request_timestamp(COMMITMENT, authority.url)


def stamp_unasked(tsa):
    """A stamp that `request_timestamp` did not look at."""
    from rfc3161_client import TimestampRequestBuilder

    return tsa.stamp(TimestampRequestBuilder(COMMITMENT.encode(), nonce=True, cert_req=True).build().as_bytes())


def refusal(token, commitment, roots):
    with pytest.raises(TimestampError) as caught:
        verify_timestamp(token, commitment, roots)
    return str(caught.value)


# -- asking


def test_a_stamp_says_who_stamped_when_and_how_exactly(tsa):
    before = datetime.now(UTC).replace(microsecond=0)
    stamp = verify_timestamp(request_timestamp(COMMITMENT, tsa.url), COMMITMENT, [tsa.root])
    assert before <= stamp.time <= datetime.now(UTC)
    assert stamp.time.tzinfo is UTC
    assert stamp.accuracy == timedelta(seconds=1.5)
    assert stamp.authority == "O=Loopback,CN=Local TSA"
    assert stamp.policy == "1.2.3.4.1"
    assert stamp.serial > 0x1000
    assert Timestamp.from_dict(stamp.to_dict()) == stamp


def test_the_authority_sees_a_hash_of_the_commitment_and_nothing_else(tsa):
    tsa.requests.clear()
    request_timestamp(COMMITMENT, tsa.url)
    ((content_type, query),) = tsa.requests
    assert content_type == "application/timestamp-query"
    assert COMMITMENT.encode() not in query and bytes.fromhex(COMMITMENT) not in query


@pytest.mark.parametrize("intermediate", [False, True])
def test_openssl_alone_checks_a_token_with_the_command_in_the_docstring(tmp_path, intermediate):
    with LocalTSA(tmp_path / "tsa", intermediate=intermediate).running() as tsa:
        token = request_timestamp(COMMITMENT, tsa.url)
    (tmp_path / "token.tsr").write_bytes(token)
    command = f"openssl ts -verify -data /dev/stdin -in {tmp_path}/token.tsr -CAfile {tsa.root}"
    for commitment, verdict in ((COMMITMENT, "Verification: OK"), (OTHER, "Verification: FAILED")):
        done = subprocess.run(f"printf %s {commitment} | {command}", shell=True, capture_output=True, text=True)
        assert verdict in done.stdout + done.stderr
    assert verify_timestamp(token, COMMITMENT, [tsa.root]).authority == "O=Loopback,CN=Local TSA"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("refuses", "did not grant.*not supported"),
        ("500", "HTTP status 500"),
        ("redirects", "HTTP status 302"),
        ("garbage", "is not an RFC 3161 response"),
        ("truncated", "is not an RFC 3161 response"),
        ("too large", "too large"),
        ("drips", "did not answer within 0.3 seconds"),
        ("hangs up", "cannot be reached, or broke off"),
        ("another digest", "stamped another digest"),
        ("wrong nonce", "did not repeat the nonce"),
        ("no certificate", "does not carry the certificate"),
    ],
)
def test_an_answer_that_is_no_stamp_of_ours_is_refused_by_name(tsa, fault, words):
    tsa.fault = fault
    with pytest.raises(TimestampError, match=words):
        request_timestamp(COMMITMENT, tsa.url, timeout=0.3 if fault == "drips" else 30.0)


def test_an_authority_that_wants_another_hash_gets_it(tsa):
    tsa.fault = "refuses sha256"
    token = request_timestamp(COMMITMENT, tsa.url)
    assert verify_timestamp(token, COMMITMENT, [tsa.root]).authority.endswith("Local TSA")
    assert "something else" in refusal(token, OTHER, [tsa.root])


def test_no_network_and_no_address_are_told_apart_and_show_no_password():
    with pytest.raises(TimestampError, match="cannot be reached") as caught:
        request_timestamp(COMMITMENT, "http://me:hunter2@127.0.0.1:9/stamp?token=hunter2")
    assert "hunter2" not in str(caught.value)
    for url in ("file:///etc/passwd", "tsa.example.org", None):
        with pytest.raises(TimestampError, match="starts with http"):
            request_timestamp(COMMITMENT, url)


@pytest.mark.parametrize("commitment", ["", "ab", COMMITMENT.upper(), COMMITMENT + "\n", "g" * 64, None, b"a" * 64])
def test_only_a_commitment_is_stamped(tsa, commitment):
    with pytest.raises(InvalidInputError, match="64 lower-case hexadecimal digits"):
        request_timestamp(commitment, tsa.url)


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch, tsa, token):
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    with pytest.raises(TimestampError, match=r"pip install drw_hf\[timestamp\]"):
        request_timestamp(COMMITMENT, tsa.url)
    with pytest.raises(TimestampError, match=r"pip install drw_hf\[timestamp\]"):
        verify_timestamp(token, COMMITMENT, [tsa.root])


# -- verifying


def test_a_token_of_another_commitment_proves_nothing(tsa, token):
    assert "of something else" in refusal(token, OTHER, [tsa.root])


def test_only_the_verifiers_roots_are_trusted(tsa, token, stranger):
    assert "does not lead to a trusted root" in refusal(token, COMMITMENT, [stranger.root])
    assert "no trusted root was given" in refusal(token, COMMITMENT, [])
    # Neither the signer's own certificate nor one in between is a root.
    assert "does not lead to a trusted root" in refusal(token, COMMITMENT, [tsa.folder / "tsa.pem"])


def test_roots_come_as_paths_strings_or_bytes_several_in_a_file(tmp_path, tsa, token, stranger):
    bundle = tmp_path / "roots.pem"
    bundle.write_bytes(stranger.root.read_bytes() + tsa.root.read_bytes())
    for roots in ([bundle], [str(bundle)], [bundle.read_bytes()], [stranger.root, tsa.root], [tsa.root] * 2, bundle):
        assert verify_timestamp(token, COMMITMENT, roots).policy == "1.2.3.4.1"


def test_roots_that_cannot_be_read_are_named(tmp_path, token):
    assert "absent.pem cannot be read" in refusal(token, COMMITMENT, [tmp_path / "absent.pem"])
    (tmp_path / "empty.pem").write_text("nothing")
    assert "empty.pem holds no certificate" in refusal(token, COMMITMENT, [tmp_path / "empty.pem"])


def test_a_certificate_that_had_expired_stamps_nothing(tsa):
    tsa.fault = "expired certificate"
    token = request_timestamp(COMMITMENT, tsa.url)
    assert "certificate has expired" in refusal(token, COMMITMENT, [tsa.root])


def test_a_stamp_outlives_its_certificate(tsa):
    tsa.fault, tsa.time = "expired certificate", "20200601120000"
    token = request_timestamp(COMMITMENT, tsa.url)
    assert verify_timestamp(token, COMMITMENT, [tsa.root]).time == datetime(2020, 6, 1, 12, tzinfo=UTC)


def test_a_certificate_for_something_else_stamps_nothing(tsa):
    tsa.fault = "certificate for something else"
    token = request_timestamp(COMMITMENT, tsa.url)
    assert "not for time stamps" in refusal(token, COMMITMENT, [tsa.root])


def test_a_refusal_is_no_stamp(tsa):
    tsa.fault = "refuses"
    tsa.requests.clear()
    with pytest.raises(TimestampError):
        request_timestamp(COMMITMENT, tsa.url)
    assert "is a refusal" in refusal(tsa.stamp(tsa.requests[0][1]), COMMITMENT, [tsa.root])


def test_a_token_that_was_altered_anywhere_says_the_same_or_does_not_verify(tmp_path):
    tsa = LocalTSA(tmp_path, intermediate=True)
    token = stamp_unasked(tsa)
    whole = verify_timestamp(token, COMMITMENT, [tsa.root])
    survivors = 0
    for position in range(0, len(token), 2):
        altered = bytearray(token)
        altered[position] ^= 0x10
        try:
            assert verify_timestamp(bytes(altered), COMMITMENT, [tsa.root]) == whole
            survivors += 1  # bytes that neither the signature nor the certificate covers
        except TimestampError:
            pass
    assert survivors < 0.05 * len(token)


@pytest.mark.parametrize("content", [b"", b"0", b"\x30\x03\x02\x01\x00", b"\x30\x84\xff\xff\xff\xff", b"\xff" * 500])
def test_garbage_is_no_token(tsa, content):
    assert "not an RFC 3161 response" in refusal(content, COMMITMENT, [tsa.root])


def test_another_time_cannot_be_written_into_a_token(tsa, token):
    year = str(datetime.now(UTC).year).encode()
    assert token.count(b"\x18\x0f" + year) == 1
    older = token.replace(b"\x18\x0f" + year, b"\x18\x0f2020")
    assert "signature of the time-stamp token does not verify" in refusal(older, COMMITMENT, [tsa.root])


# -- weak means


def with_digests_listed(token, algorithm):
    """The token with another list of digests, which is not part of what is signed; all lengths around it follow."""
    inner = 6 + token[5]  # the token, after the status
    at = inner + 23  # its SignedData: a version and the list
    assert token[at : at + 4] == bytes.fromhex("02010331")
    end = at + 5 + token[at + 4]
    listed = bytes([0x31, len(algorithm)]) + algorithm
    longer = len(listed) - (end - at - 3)
    altered = bytearray(token[: at + 3] + listed + token[end:])
    for length in (2, inner + 2, inner + 17, inner + 21):
        size = int.from_bytes(altered[length : length + 2], "big") + longer
        altered[length : length + 2] = size.to_bytes(2, "big")
    return bytes(altered)


def certificate(key, subject, issuer, issuer_key, **extensions):
    """A certificate as openssl would not make it, in PEM."""
    since = datetime(2019, 1, 1)
    builder = x509.CertificateBuilder(
        x509.Name.from_rfc4514_string(issuer),
        x509.Name.from_rfc4514_string(subject),
        key.public_key(),
        x509.random_serial_number(),
        since,
        since + timedelta(days=9999),
    )
    for name, extension in extensions.items():
        builder = builder.add_extension(extension, critical=name == "usage")
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.PEM)


def private_key(tsa, name):
    return load_pem_private_key((tsa.folder / f"{name}.key").read_bytes(), None)


def self_signed(name):
    key = ec.generate_private_key(ec.SECP256R1())
    return certificate(key, f"CN={name}", f"CN={name}", key)


@pytest.mark.parametrize(
    ("part", "weakness", "words"),
    [
        ("tsa", "sha1", "'O=Loopback,CN=Local TSA' .* the hash sha1"),
        ("tsa", "RSA 1024", "'O=Loopback,CN=Local TSA' .* weak RSA key of 1024 bits"),
        ("tsa", "EC P-224", "'O=Loopback,CN=Local TSA' .* weak EC key of 224 bits"),
        ("intermediate", "sha1", "'O=Loopback,CN=Intermediate of .* the hash sha1"),
        ("intermediate", "RSA 1024", "'O=Loopback,CN=Intermediate of .* weak RSA key of 1024 bits"),
        ("intermediate", "EC P-224", "'O=Loopback,CN=Intermediate of .* weak EC key of 224 bits"),
        ("root", "RSA 1024", "'O=Loopback,CN=Root of .* weak RSA key of 1024 bits"),
        ("root", "EC P-224", "'O=Loopback,CN=Root of .* weak EC key of 224 bits"),
    ],
)
def test_a_weak_certificate_anywhere_in_the_chain_proves_nothing(tmp_path, part, weakness, words):
    tsa = LocalTSA(tmp_path, intermediate=True, weak={part: weakness})
    assert re.search(words, refusal(stamp_unasked(tsa), COMMITMENT, [tsa.root]))


def test_keys_of_2048_bits_will_do_and_how_a_root_signed_itself_does_not_matter(tmp_path):
    tsa = LocalTSA(tmp_path, weak={"tsa": "RSA 2048", "root": "sha1"})
    assert verify_timestamp(stamp_unasked(tsa), COMMITMENT, [tsa.root]).policy == "1.2.3.4.1"


def test_a_weak_certificate_with_the_name_of_its_root_is_not_taken_for_a_root(tmp_path):
    root = "O=Loopback,CN=Root of Local TSA"
    tsa = LocalTSA(tmp_path, weak={"root": "RSA 2048", "forged": "sha1"})
    tsa._issue("forged", "Root of Local TSA", "root", "20190101000000Z")
    forger = private_key(tsa, "forged")
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(forger.public_key())
    (tmp_path / "tsa.pem").write_bytes(
        certificate(private_key(tsa, "tsa"), "CN=Local TSA", root, forger, usage=STAMPS, by=by)
    )
    tsa.chain = ["-chain", "forged.pem"]
    token = stamp_unasked(tsa)
    assert f"{root!r} in the time-stamp token's chain is signed with the hash sha1" in refusal(
        token, COMMITMENT, [tsa.root]
    )


def test_a_weak_digest_under_the_signature_proves_nothing(tsa):
    tsa.fault = "signs with sha1"
    token = stamp_unasked(tsa)
    assert "signed with the digest SHA-1" in refusal(token, COMMITMENT, [tsa.root])
    # The list of digests is not signed; but what it does not name is not found when the signature is verified.
    assert "signature of the time-stamp token does not verify" in refusal(
        with_digests_listed(token, SHA256), COMMITMENT, [tsa.root]
    )


def test_a_time_that_is_yet_to_come_proves_nothing(tsa):
    ahead = datetime.now(UTC) + timedelta(minutes=2)
    tsa.time = f"{ahead:%Y%m%d%H%M%S}"
    assert verify_timestamp(stamp_unasked(tsa), COMMITMENT, [tsa.root]).time == ahead.replace(microsecond=0)
    tsa.time = "20400101000000"
    assert "says 2040-01-01 00:00:00 UTC, which is yet to come" in refusal(stamp_unasked(tsa), COMMITMENT, [tsa.root])


def test_a_chain_whose_names_agree_only_roughly_proves_nothing(tmp_path):
    """OpenSSL does not mind upper and lower case; what we cannot follow we cannot check for weakness."""
    tsa = LocalTSA(tmp_path)
    own, roots = (private_key(tsa, name) for name in ("tsa", "root"))
    for issuer in ("O=Loopback,CN=Root of Local TSA", "O=LOOPBACK,CN=ROOT OF LOCAL TSA"):
        (tmp_path / "tsa.pem").write_bytes(certificate(own, "CN=Local TSA", issuer, roots, usage=STAMPS))
        token = stamp_unasked(tsa)
        if issuer.isupper():
            assert "names that agree to the letter" in refusal(token, COMMITMENT, [tsa.root])
        else:
            assert verify_timestamp(token, COMMITMENT, [tsa.root]).authority == "CN=Local TSA"


def test_a_token_full_of_certificates_is_not_read(tmp_path):
    tsa = LocalTSA(tmp_path)
    crowd = b"".join(self_signed(f"One of many {number}") for number in range(20))
    (tmp_path / "crowd.pem").write_bytes(crowd)
    tsa.chain = ["-chain", "crowd.pem"]
    assert "carries 21 certificates" in refusal(stamp_unasked(tsa), COMMITMENT, [tsa.root])
    (tmp_path / "crowd.pem").write_bytes(b"".join(self_signed(f"One of few {number}") for number in range(3)))
    assert verify_timestamp(stamp_unasked(tsa), COMMITMENT, [tsa.root]).policy == "1.2.3.4.1"


def test_a_weak_stamp_is_refused_while_another_authority_can_be_asked(tsa, tmp_path):
    tsa.fault = "signs with sha1"
    with pytest.raises(TimestampError, match=r"the digest SHA-1.*another authority"):
        request_timestamp(COMMITMENT, tsa.url)
    tsa.fault, tsa.time = None, "20400101000000"
    with pytest.raises(TimestampError, match="yet to come"):
        request_timestamp(COMMITMENT, tsa.url)
    with LocalTSA(tmp_path, weak={"tsa": "RSA 1024"}).running() as weak:
        with pytest.raises(TimestampError, match=r"weak RSA key of 1024 bits.*another authority"):
            request_timestamp(COMMITMENT, weak.url)
