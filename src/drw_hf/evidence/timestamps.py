"""RFC 3161 time stamps: a third party's signed word that a commitment existed at a time.

What is stamped is the commitment's 64 hexadecimal digits as ASCII, without a newline, so that nobody needs this
package to check a token::

    printf %s COMMITMENT | openssl ts -verify -data /dev/stdin -in token.tsr -CAfile roots.pem

(with ``-attime SECONDS``, the stamp's own time, once the authority's certificate has expired). The authority sees a
hash of the commitment, which itself shows nothing of the key. Whom to trust is the verifier's choice: the roots are
always given, never taken from the token.
"""

import hashlib
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, Self

import httpx2
from cryptography import x509

from ..checks import unfit
from ..errors import InvalidInputError, TimestampError
from ..reading.files import LARGEST_DOCUMENT, read_within
from .certificates import (
    ASK_ANOTHER,
    DAMAGED,
    EXPECTED_HASH,
    check_certificate,
    check_chain,
    check_usage,
    subject_of,
)

_LARGEST_RESPONSE = 256 * 1024  # a token with a long chain of certificates has some 10 kB
_MOST_CERTIFICATES = 20  # a token must not make its reader work without end
_CLOCKS_DIFFER = timedelta(minutes=5)  # how far an authority's clock may be ahead of ours
_HASHES = {
    "2.16.840.1.101.3.4.2.1": hashlib.sha256,
    "2.16.840.1.101.3.4.2.2": hashlib.sha384,
    "2.16.840.1.101.3.4.2.3": hashlib.sha512,
}
_WEAK_HASHES = {"1.2.840.113549.2.5": "MD5", "1.3.14.3.2.26": "SHA-1", "2.16.840.1.101.3.4.2.4": "SHA-224"}


@dataclass(frozen=True)
class Timestamp:
    """What a verified time stamp says.

    Attributes
    ----------
    time : datetime
        When the authority saw the commitment (UTC).
    accuracy : timedelta or None
        How far off that may be, where the authority says so.
    authority : str
        The subject of the authority's certificate, as in ``"CN=Some TSA,O=Some company"``.
    serial : int
        The stamp's number at that authority.
    policy : str
        The object identifier of the policy under which it stamped.
    """

    time: datetime
    accuracy: timedelta | None
    authority: str
    serial: int
    policy: str

    def to_dict(self) -> dict[str, Any]:
        """The stamp as JSON can hold it; the serial, of up to 160 bits, as a string."""
        return {
            "time": self.time.isoformat(),
            "accuracy_seconds": None if self.accuracy is None else self.accuracy.total_seconds(),
            "authority": self.authority,
            "serial": str(self.serial),
            "policy": self.policy,
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The stamp that :meth:`to_dict` wrote down; ``TypeError`` or ``ValueError`` for anything else."""
        accuracy = fields["accuracy_seconds"]
        if unfit(fields, {**dict.fromkeys(fields, str), "accuracy_seconds": float | None}):
            raise TypeError
        return cls(
            time=datetime.fromisoformat(fields["time"]),
            accuracy=None if accuracy is None else timedelta(seconds=accuracy),
            authority=fields["authority"],
            serial=int(fields["serial"]),
            policy=fields["policy"],
        )


def commitment_bytes(commitment: str) -> bytes:
    """A commitment as it is stamped and published; anything but 64 digits is refused."""
    if not isinstance(commitment, str) or not re.fullmatch("[0-9a-f]{64}", commitment):
        raise InvalidInputError("a commitment is 64 lower-case hexadecimal digits, as key.commitment() gives them")
    return commitment.encode("ascii")


def request_timestamp(commitment: str, url: str, *, timeout: float = 30.0) -> bytes:
    """Have a commitment stamped; returns the DER response, as ``openssl ts -reply`` writes it to a ``.tsr`` file.

    The answer is checked to be granted, of this commitment, fresh (it repeats our nonce), to carry its certificate
    and to be signed by no weaker means than :func:`verify_timestamp` takes, which also checks the signature. An
    authority that refuses is asked once more with SHA-512, which some want in place of SHA-256.
    """
    client = _client()
    message = commitment_bytes(commitment)
    try:  # for messages: without user name, password and query
        parsed = httpx2.URL(url)
        authority = f"{parsed.scheme}://{parsed.netloc.decode()}"
    except (httpx2.InvalidURL, TypeError):
        authority = "the time-stamping authority"
    answer = f"the answer of {authority}"
    for algorithm in (client.HashAlgorithm.SHA256, client.HashAlgorithm.SHA512):
        query = client.TimestampRequestBuilder(message, algorithm, nonce=True, cert_req=True).build()
        content = _post(url, authority, query.as_bytes(), timeout)
        response = _decode(content, answer)
        if response.status != client.PKIStatus.REJECTION:
            break
    if response.status != client.PKIStatus.GRANTED:
        reason = "; ".join(response.status_string)[:200] or f"status {int(response.status)}, no reason given"
        raise TimestampError(f"{authority} did not grant the time stamp: {reason}; ask another authority")
    info = _signed_info(response, answer)
    stamped, asked = info.message_imprint, query.message_imprint
    if (stamped.hash_algorithm, stamped.message) != (asked.hash_algorithm, asked.message):
        raise TimestampError(f"{authority} stamped another digest than the one it was sent; ask another authority")
    if info.nonce != query.nonce:
        raise TimestampError(
            f"{authority} did not repeat the nonce it was sent: its answer may be an old one; ask another authority"
        )
    signer, _ = _signer_and_certificates(response, answer)
    _check_time_and_digests(response)
    check_certificate(signer)
    return content


def verify_timestamp(token: bytes, commitment: str, trusted_roots: Sequence[str | os.PathLike | bytes]) -> Timestamp:
    """Verify that a trusted authority stamped this commitment, and return what it says.

    Checked are the digest, the certificate's usage (timeStamping, and nothing else will do), the signature and the
    chain to one of the trusted roots, at the time of the stamp: a certificate that has expired since still proves what
    was stamped before. Weak means prove nothing, and are refused: a time that is yet to come, a digest or a
    certificate signed with anything but SHA-256, SHA-384 or SHA-512 (a root's signature of itself does not matter),
    RSA keys of less than 2048 bits, EC keys of less than 256. Revocation is not checked; that needs the network and
    the authority's word of today.

    Parameters
    ----------
    token : bytes
        The DER response that :func:`request_timestamp` returned.
    commitment : str
        The 64 hexadecimal digits it should be of.
    trusted_roots : sequence of path or bytes
        PEM files, or their content as bytes, with one or more self-signed root certificates each. They are the
        verifier's choice.

    Raises
    ------
    TimestampError
        Says which of the checks failed.
    InvalidInputError
        When the commitment is none.
    """
    client = _client()
    message = commitment_bytes(commitment)
    roots = load_roots(trusted_roots)
    response = _decode(token)
    if response.status != client.PKIStatus.GRANTED:
        raise TimestampError("the time-stamp token is a refusal, not a stamp; have the commitment stamped again")
    info = _signed_info(response)
    imprint, accuracy = info.message_imprint, info.accuracy
    digest = _digest(message, imprint.hash_algorithm)
    if digest is None:
        raise TimestampError(
            f"the time-stamp token is of a digest with {_hash_name(imprint.hash_algorithm)}, {EXPECTED_HASH}; have "
            "the commitment stamped again"
        )
    if imprint.message != digest:
        raise TimestampError(
            f"the time-stamp token is of something else, not of the commitment {commitment[:16]}…; find the token "
            "that was made for it"
        )
    signer, certificates = _signer_and_certificates(response)
    check_usage(signer)
    _check_time_and_digests(response)
    try:
        client.VerifierBuilder(roots=roots).build().verify(response, digest)
    except (client.VerificationError, *DAMAGED) as error:
        problem = re.search(r'Verify error: ?([^"]*)', str(error))
        if problem is None:
            raise TimestampError(
                "the signature of the time-stamp token does not verify: it was damaged or altered; restore it from "
                "where it was published"
            ) from None
        raise TimestampError(
            f"the certificate of the time-stamp token (of {subject_of(signer)!r}) does not lead to a trusted root, or "
            f"was not valid at that time: {problem[1]}; check that the right root was given"
        ) from None
    check_chain(signer, certificates, roots)
    if accuracy is not None:
        accuracy = timedelta(
            seconds=accuracy.seconds or 0, milliseconds=accuracy.millis or 0, microseconds=accuracy.micros or 0
        )
    stamped_at, authority = info.gen_time.astimezone(UTC), subject_of(signer)
    return Timestamp(stamped_at, accuracy, authority, info.serial_number, info.policy.dotted_string)


def is_stamp_of(token: bytes, commitment: str) -> bool:
    """Whether a token claims to be of this commitment; whether the claim is true is for :func:`verify_timestamp`."""
    _client()  # without which nobody can tell
    try:
        imprint = _signed_info(_decode(token)).message_imprint
    except TimestampError:
        return False
    return imprint.message == _digest(commitment_bytes(commitment), imprint.hash_algorithm)


def can_read_stamps() -> bool:
    """Whether the package that reads time stamps is there."""
    try:
        _client()
    except TimestampError:
        return False
    return True


def _client() -> ModuleType:
    try:
        import rfc3161_client
    except ImportError:
        raise TimestampError(
            "time stamps need the package rfc3161-client; install it with `pip install drw_hf[timestamp]`"
        ) from None
    return rfc3161_client


def _post(url: str, authority: str, query: bytes, timeout: float) -> bytes:
    headers = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
    deadline = time.monotonic() + timeout
    content = b""
    try:
        with httpx2.stream("POST", url, content=query, headers=headers, timeout=timeout) as response:
            if response.status_code != 200:
                raise TimestampError(
                    f"{authority} answered with the HTTP status {response.status_code} instead of a time stamp; "
                    "check the address, or try again later"
                )
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > _LARGEST_RESPONSE:
                    raise TimestampError(
                        f"the answer of {authority} is too large for a time stamp (more than "
                        f"{_LARGEST_RESPONSE // 1024} kB); check the address"
                    )
                if time.monotonic() > deadline:
                    raise httpx2.ReadTimeout("")
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL, TypeError):
        raise TimestampError(
            "the time-stamping authority must be given as an address that starts with http:// or https://"
        ) from None
    except httpx2.TimeoutException:
        raise TimestampError(
            f"{authority} did not answer within {timeout:g} seconds; try again later, or with a longer timeout="
        ) from None
    except httpx2.HTTPError as error:
        raise TimestampError(
            f"{authority} cannot be reached, or broke off ({type(error).__name__}); check address and network"
        ) from None
    return content


def _decode(content: bytes, name: str = "the time-stamp token") -> Any:
    try:
        return _client().decode_timestamp_response(_with_ordered_certificates(content))
    except (ValueError, TypeError):
        raise TimestampError(f"{name} is not an RFC 3161 response, or is damaged") from None


def _signed_info(response: Any, name: str = "the time-stamp token") -> Any:
    """What the authority signed: time, digest, nonce."""
    try:
        return response.tst_info
    except ValueError:
        raise TimestampError(f"{name} holds no time-stamp token that can be read") from None


def _signer_and_certificates(
    response: Any, name: str = "the time-stamp token"
) -> tuple[x509.Certificate, list[x509.Certificate]]:
    """The certificate that the one signer names, and all that came with it; none is trusted for being there."""
    try:
        found = response.signed_data.certificates
        if len(found) > _MOST_CERTIFICATES:
            raise TimestampError(f"{name} carries {len(found)} certificates, where a chain of a few is expected")
        certificates = [x509.load_der_x509_certificate(der) for der in found]
        named = [(signer.issuer, signer.serial_number) for signer in response.signed_data.signer_infos]
        for certificate in certificates:
            if [(certificate.issuer, certificate.serial_number)] == named:
                return certificate, certificates
    except DAMAGED:
        raise TimestampError(f"{name} carries a damaged certificate") from None
    raise TimestampError(
        f"{name} does not carry the certificate of its one signer, without which nobody can check it; ask another "
        "authority"
    )


def _with_ordered_certificates(response: bytes) -> bytes:
    """The response with its certificates in the order of DER, which is all that the client library takes.

    openssl, which many authorities run, writes a chain as it comes. The certificates are not part of what is signed.
    """
    try:
        at = 0
        # Four levels down, past: status; content type; nothing; version, digest algorithms and content.
        for n_passed in (1, 1, 0, 3):
            at, _ = _inside(response, at)
            for _ in range(n_passed):
                _, at = _inside(response, at)
        if response[at] != 0xA0:  # [0], the certificates; they may be left out
            return response
        start, end = _inside(response, at)
        certificates, at = [], start
        while at < end:
            _, after = _inside(response, at)
            certificates.append(response[at:after])
            at = after
    except (IndexError, TypeError):
        return response
    return response[:start] + b"".join(sorted(certificates)) + response[end:] if at == end else response


def _inside(data: bytes, at: int) -> tuple[int, int]:
    """Where the content of the DER element at ``at`` starts and ends."""
    length, start = data[at + 1], at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[at + 2 : start], "big")
    if start + length > len(data):
        raise IndexError
    return start, start + length


def _check_time_and_digests(response: Any) -> None:
    time = response.tst_info.gen_time
    if time - datetime.now(UTC) > _CLOCKS_DIFFER:
        raise TimestampError(
            f"the time-stamp token says {time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, which is yet to come; check "
            f"this machine's clock, or {ASK_ANOTHER}"
        )
    # The client library does not show which digest the signer names. OpenSSL, with which it verifies, knows none but
    # those that the token lists, so no weak one may be among them.
    for algorithm in response.signed_data.digest_algorithms:
        if algorithm.dotted_string not in _HASHES:
            raise TimestampError(
                f"the time-stamp token is signed with the digest {_hash_name(algorithm)}, {EXPECTED_HASH}; "
                f"{ASK_ANOTHER}"
            )


def _digest(message: bytes, algorithm: x509.ObjectIdentifier) -> bytes | None:
    """The message's digest, or None for an algorithm that proves nothing."""
    hash_function = _HASHES.get(algorithm.dotted_string)
    return None if hash_function is None else hash_function(message).digest()


def _hash_name(algorithm: x509.ObjectIdentifier) -> str:
    return _WEAK_HASHES.get(algorithm.dotted_string, algorithm.dotted_string)


def load_roots(trusted_roots: Sequence[str | os.PathLike | bytes]) -> list[x509.Certificate]:
    """The certificates a verifier trusts; the error says what would keep any token from being verified."""
    _client()
    if isinstance(trusted_roots, str | bytes | os.PathLike):
        trusted_roots = [trusted_roots]
    roots: list[x509.Certificate] = []
    for source in trusted_roots:
        named = "a trusted root given as bytes" if isinstance(source, bytes) else f"the trusted root {source}"
        try:
            content = source if isinstance(source, bytes) else read_within(source, LARGEST_DOCUMENT, TimestampError)
            roots += x509.load_pem_x509_certificates(content)
        except OSError as error:
            raise TimestampError(f"{named} cannot be read: {error.strerror or type(error).__name__}") from None
        except ValueError:
            raise TimestampError(f"{named} holds no certificate in PEM form; get it from the authority") from None
    if not roots:
        raise TimestampError(
            "no trusted root was given; get the root certificate of a time-stamping authority that you trust, and "
            "pass its PEM file"
        )
    return roots
