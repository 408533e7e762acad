"""Public randomness that nobody can choose or foretell: rounds of drand and pulses of the NIST beacon.

A round is named before it is drawn. What its source publishes then is JSON, read here from a file, never from the
network: of drand what ``https://api.drand.sh/CHAIN/public/NUMBER`` gives, of NIST what
``https://beacon.nist.gov/beacon/2.0/chain/CHAIN/pulse/time/MILLISECONDS`` gives.

A pulse of NIST (Beacon 2.0, NIST IR 8213) carries an RSA signature, which `cryptography` verifies. A round of drand is
a BLS signature over its number; it is verified where py_ecc is installed, the extra ``drw_hf[drand]``.

The hash of a block is no source here: it has no signature that a file could show, and who mines may throw blocks away.
"""

import hashlib
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from ..checks import unfit
from ..errors import InvalidInputError, RoundValueError
from ..reading.files import parse_json
from . import bls

NIST = "nist"
NIST_CHAIN = "2"  # the present one
LARGEST_VALUE = 64 * 1024  # bytes of a round's JSON: a pulse has some four thousand
_PULSE_SECONDS = 60
_LEAST_RSA_BITS = 2048
_DIGEST_BYTES = 64
_PULSE: dict[str, Any] = {
    **dict.fromkeys(("uri", "version", "certificateId", "timeStamp", "localRandomValue"), str),
    **dict.fromkeys(("precommitmentValue", "signatureValue", "outputValue"), str),
    **dict.fromkeys(("cipherSuite", "period", "chainIndex", "pulseIndex", "statusCode"), int),
    "external": dict[str, Any],
    "listValues": list[dict[str, Any]],
}
_EXTERNAL: dict[str, Any] = {"sourceId": str, "statusCode": int, "value": str}


@dataclass(frozen=True)
class _DrandChain:
    """A chain of drand, as its ``/info`` describes it for ever: another key is another chain."""

    hash: str
    public_key: str
    genesis: int
    period: int
    chained: bool


DRAND = {
    "quicknet": _DrandChain(
        hash="52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971",
        public_key="83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451"
        "0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a",
        genesis=1692803367,
        period=3,
        chained=False,
    ),
    "default": _DrandChain(
        hash="8990e7a9aaed2ffed73dbd7092123d6f289930540d7651336225dc172e51b2ce",
        public_key="868f005eb8e6e4ca0a47c8a77ceaa5309a47978a7c71bc5cce96366b5d7a569937c529eeda66c7293784a9402801af31",
        genesis=1595431050,
        period=30,
        chained=True,
    ),
}
SOURCES = (*DRAND, NIST)


@dataclass(frozen=True)
class RoundValue:
    """What a source published for a round.

    Attributes
    ----------
    value : bytes
        The random value: 64 bytes of NIST, 32 of drand.
    verified : bool
        Whether the source's signature over it was verified. Where it could not be, for lack of a package, the value is
        somebody's word; one whose signature is wrong is refused.
    """

    value: bytes
    verified: bool


@dataclass(frozen=True)
class Round:
    """One exact round of a public source of randomness, named before it is drawn.

    Attributes
    ----------
    source : str
        ``"quicknet"`` or ``"default"``, chains of drand, or ``"nist"``.
    chain : str
        Of drand the hash of the chain, of NIST its number.
    public_key : str
        What the source signs with, in hexadecimal digits: of drand as the chain's ``/info`` has it, of NIST the
        SubjectPublicKeyInfo (DER) of the certificate.
    number : int
        Of drand the round's number, of NIST its time in milliseconds since 1970.
    """

    source: str
    chain: str
    public_key: str
    number: int

    def __post_init__(self) -> None:
        fits = not unfit(vars(self), {"source": str, "chain": str, "public_key": str, "number": int})
        if fits and self.source in DRAND:
            known = DRAND[self.source]
            fits = (self.chain, self.public_key) == (known.hash, known.public_key) and self.number >= 1
        elif fits:
            whole = self.number % (1000 * _PULSE_SECONDS) == 0 and self.number > 0
            fits = self.source == NIST and re.fullmatch("[1-9][0-9]{0,8}", self.chain) is not None and whole
            fits = fits and _rsa_key(self.public_key) is not None
        try:
            fits = bool(fits and self.time)
        except (OverflowError, ValueError):
            fits = False
        if not fits:
            raise InvalidInputError(
                "this is no round of public randomness that is known here: its source, chain, key and number do not "
                f"fit; name it with Round.at, of one of the sources {list(SOURCES)}"
            )

    @classmethod
    def at(cls, source: str, time: datetime, *, certificate: bytes | None = None, chain: str = NIST_CHAIN) -> Self:
        """The first round of a source at that time or after it.

        Parameters
        ----------
        source : str
            ``"quicknet"`` (drand, every 3 seconds), ``"default"`` (drand, every 30) or ``"nist"`` (every minute).
        time : datetime
            When; UTC, where it has no time zone.
        certificate : bytes, optional
            For ``"nist"``: the certificate by which its pulses are signed, as PEM. It has to be valid at that time.
        chain : str
            For ``"nist"``: the number of the chain.

        Examples
        --------
        >>> from datetime import datetime
        >>> Round.at("quicknet", datetime(2030, 1, 1)).number
        66884212
        """
        if source not in SOURCES:
            raise InvalidInputError(f"source={source!r}: expected one of {list(SOURCES)}")
        seconds = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        if source in DRAND:
            known = DRAND[source]
            return cls(source, known.hash, known.public_key, ceil((seconds - known.genesis) / known.period) + 1)
        if certificate is None:
            raise InvalidInputError(
                "a pulse of NIST is signed by a certificate, and none was given; give the PEM file that "
                "https://beacon.nist.gov/beacon/2.0/certificate/ID has under the certificateId of a present pulse"
            )
        public_key = public_key_of(certificate)
        return cls(source, chain, public_key, ceil(seconds / _PULSE_SECONDS) * _PULSE_SECONDS * 1000)

    @property
    def time(self) -> datetime:
        """When it is drawn (UTC), by the source's own timetable."""
        if self.source in DRAND:
            known = DRAND[self.source]
            return datetime.fromtimestamp(known.genesis + (self.number - 1) * known.period, UTC)
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=self.number)

    @property
    def address(self) -> str:
        """Where the source publishes its value."""
        if self.source in DRAND:
            return f"https://api.drand.sh/{self.chain}/public/{self.number}"
        return f"https://beacon.nist.gov/beacon/2.0/chain/{self.chain}/pulse/time/{self.number}"

    def __str__(self) -> str:
        when = f"{self.time:%Y-%m-%d %H:%M:%S} UTC"
        return f"round {self.number} of drand's {self.source}, {when}" if self.source in DRAND else f"NIST, {when}"

    def read(self, content: bytes | Mapping[str, Any]) -> dict[str, Any]:
        """What of a source's JSON shows the round's value, if it is of this very round and not forged.

        Raises
        ------
        RoundValueError
            For JSON that is none, of another round, or whose signature is wrong.
        """
        document = content if isinstance(content, Mapping) else parse_json(content)
        document = document if isinstance(document, Mapping) else {}
        if self.source in DRAND:
            names: tuple[str, ...] = ("round", "signature", "previous_signature", "randomness")
        else:
            document = document["pulse"] if isinstance(document.get("pulse"), Mapping) else document
            names = tuple(_PULSE)
        kept = {name: document[name] for name in names if document.get(name) is not None}
        self.value_of(kept)
        return kept

    def value_of(self, document: Mapping[str, Any]) -> RoundValue:
        """The value that :meth:`read` found, verified as far as that can be done here."""
        return self._drand_value(document) if self.source in DRAND else self._pulse_value(document)

    def _drand_value(self, document: Mapping[str, Any]) -> RoundValue:
        known = DRAND[self.source]
        kinds = {"round": int, "signature": str, "previous_signature": str, "randomness": str}
        signature = _from_hex(document.get("signature"))
        before = _from_hex(document.get("previous_signature", "")) if known.chained else b""
        if unfit(document, kinds) or not signature or before is None or (known.chained and not before):
            raise self._refusal("it is not what drand publishes of a round (round, signature)")
        if document.get("round") != self.number:
            raise self._refusal(f"it is of round {document.get('round')}")
        value = hashlib.sha256(signature).digest()
        if document.get("randomness", value.hex()) != value.hex():
            raise self._refusal("its randomness is not the SHA-256 of its signature")
        message = hashlib.sha256(before + self.number.to_bytes(8, "big")).digest()
        verified = bls.verify(bytes.fromhex(self.public_key), message, signature)
        if verified is False:
            raise self._refusal("its signature is not that of drand")
        return RoundValue(value, verified is True)

    def _pulse_value(self, pulse: Mapping[str, Any]) -> RoundValue:
        signed = _signed_part(pulse)
        signature = _from_hex(pulse.get("signatureValue"))
        if signed is None or signature is None:
            raise self._refusal("it is not a pulse of the NIST beacon, version 2.0")
        stamp = f"{self.time:%Y-%m-%dT%H:%M:%S}.000Z"
        if (pulse["timeStamp"], str(pulse["chainIndex"])) != (stamp, self.chain):
            found = f"of chain {pulse['chainIndex']}, {str(pulse['timeStamp'])[:40]}"
            raise self._refusal(f"it is {found}, where chain {self.chain}, {stamp} is expected")
        key = _rsa_key(self.public_key)
        assert key is not None  # or this would be no round
        try:
            if pulse["cipherSuite"] != 0:  # SHA-512 and RSA, the only one that NIST uses
                raise InvalidSignature
            key.verify(signature, signed, padding.PKCS1v15(), hashes.SHA512())
        except InvalidSignature:
            raise self._refusal("its signature is not by the certificate that was named beforehand") from None
        value = hashlib.sha512(signed + signature).digest()
        if pulse["outputValue"].lower() != value.hex():
            raise self._refusal("its outputValue is not the SHA-512 of what is signed and of the signature")
        return RoundValue(value, True)

    def _refusal(self, why: str) -> RoundValueError:
        return RoundValueError(
            f"this is not the value of {self}: {why}. Save what {self.address} gives, unchanged; if the source left "
            "this very round out, the key cannot be seasoned any more: make a new one, and count it as tried"
        )


def public_key_of(pem: bytes) -> str:
    """The SubjectPublicKeyInfo (DER, in hexadecimal digits) of a certificate, or of a public key, in PEM form."""
    pem = re.sub(rb"(-----BEGIN [A-Z ]+-----)(?=[^\r\n])", rb"\1\n", pem)  # as NIST serves its certificates
    try:
        key = (
            x509.load_pem_x509_certificate(pem).public_key()
            if b"CERTIFICATE" in pem
            else serialization.load_pem_public_key(pem)
        )
        spki = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo).hex()
        fits = _rsa_key(spki) is not None
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        fits = False
    if not fits:
        raise InvalidInputError(
            f"this holds no certificate with an RSA key of {_LEAST_RSA_BITS} bits or more in PEM form; get that of "
            "the NIST beacon, https://beacon.nist.gov/beacon/2.0/certificate/ID"
        )
    return spki


def _rsa_key(spki: str) -> rsa.RSAPublicKey | None:
    try:
        key = serialization.load_der_public_key(bytes.fromhex(spki))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, rsa.RSAPublicKey) and key.key_size >= _LEAST_RSA_BITS else None


def _signed_part(pulse: Mapping[str, Any]) -> bytes | None:
    """The bytes that NIST signs: all fields but the last two in their order, texts and values with their lengths."""
    if pulse.keys() != _PULSE.keys() or unfit(pulse, _PULSE):
        return None
    external = pulse["external"]
    if not external.keys() >= _EXTERNAL.keys() or unfit(external, _EXTERNAL):
        return None

    def sized(content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + content

    def value(digits: Any) -> bytes:
        return sized(bytes.fromhex(digits))

    try:
        return b"".join(
            [
                sized(pulse["uri"].encode()),
                sized(pulse["version"].encode()),
                struct.pack(">II", pulse["cipherSuite"], pulse["period"]),
                value(pulse["certificateId"]),
                struct.pack(">QQ", pulse["chainIndex"], pulse["pulseIndex"]),
                sized(pulse["timeStamp"].encode()),
                value(pulse["localRandomValue"]),
                value(external["sourceId"]),
                struct.pack(">I", external["statusCode"]),
                value(external["value"]),
                *(value(each["value"]) for each in pulse["listValues"]),
                value(pulse["precommitmentValue"]),
                struct.pack(">I", pulse["statusCode"]),
            ]
        )
    except (ValueError, TypeError, KeyError, struct.error):
        return None


def _from_hex(digits: Any) -> bytes | None:
    try:
        return bytes.fromhex(digits)
    except (ValueError, TypeError):
        return None
