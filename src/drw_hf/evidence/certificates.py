"""The certificates of a time stamp: which may sign one, and the way from there to a trusted root."""

from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ..errors import TimestampError

DAMAGED = (ValueError, KeyError, x509.InvalidVersion)  # cryptography raises each of them for damaged certificates
EXPECTED_HASH = "where SHA-256, SHA-384 or SHA-512 is expected"
ASK_ANOTHER = "have the commitment stamped by another authority"


def check_usage(certificate: x509.Certificate) -> None:
    """Refuse a signer's certificate that is not for time stamps alone."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        fit = usage.critical and list(usage.value) == [x509.ExtendedKeyUsageOID.TIME_STAMPING]
    except (x509.ExtensionNotFound, x509.DuplicateExtension, *DAMAGED):
        fit = False
    if not fit:
        raise TimestampError(
            "the time-stamp token was signed with a certificate that is not for time stamps: its extended key usage "
            "must be timeStamping alone, and critical (RFC 3161, 2.3); what it says proves nothing"
        )


def check_chain(
    certificate: x509.Certificate, carried: Sequence[x509.Certificate], roots: Sequence[x509.Certificate]
) -> None:
    """Refuse weak certificates on every way up from the signer's to a trusted root.

    OpenSSL found a way and does not tell which: beside a forged certificate a sound one may lie.
    """
    seen, waiting = set(), [certificate]
    reaches_root = False
    while waiting:
        lower = waiting.pop()
        seen.add(lower)
        check_certificate(lower, is_root=lower in roots)
        if lower in roots and _issued(lower, lower, in_doubt=True):
            reaches_root = True
        else:
            issuers = {root for root in roots if _issued(root, lower, in_doubt=False)}
            issuers = issuers or {each for each in (*carried, *roots) if _issued(each, lower, in_doubt=True)}
            waiting += issuers - seen
    if not reaches_root:  # names that OpenSSL takes for equal and we do not
        raise TimestampError(
            f"the certificate of the time-stamp token (of {subject_of(certificate)!r}) does not lead to a trusted "
            f"root by names that agree to the letter; {ASK_ANOTHER}"
        )


def check_certificate(certificate: x509.Certificate, *, is_root: bool = False) -> None:
    """Refuse a weak key and a weak signature; a root is trusted without its signature."""
    this = f"the certificate of {subject_of(certificate)!r} in the time-stamp token's chain"
    try:
        key = certificate.public_key()
        algorithm = certificate.signature_hash_algorithm
    except (*DAMAGED, UnsupportedAlgorithm):
        raise TimestampError(f"{this} has a key or a signature of an unknown kind; {ASK_ANOTHER}") from None
    for kind, title, least in ((rsa.RSAPublicKey, "RSA", 2048), (ec.EllipticCurvePublicKey, "EC", 256)):
        if isinstance(key, kind) and key.key_size < least:
            weak = f"a weak {title} key of {key.key_size} bits, where at least {least} are expected"
            raise TimestampError(f"{this} has {weak}; {ASK_ANOTHER}")
    if not isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey):
        raise TimestampError(f"{this} has a key that is neither RSA nor of an elliptic curve; {ASK_ANOTHER}")
    # Edwards curves come with a hash of their own, and name none.
    if algorithm is not None and algorithm.name not in ("sha256", "sha384", "sha512") and not is_root:
        raise TimestampError(f"{this} is signed with the hash {algorithm.name}, {EXPECTED_HASH}; {ASK_ANOTHER}")


def _issued(upper: x509.Certificate, lower: x509.Certificate, *, in_doubt: bool) -> bool:
    """Whether one certificate signed the other; ``in_doubt`` is the answer where OpenSSL alone may know."""
    try:
        if upper.subject != lower.issuer:
            return False
        lower.verify_directly_issued_by(upper)
    except InvalidSignature:
        return False
    except (*DAMAGED, TypeError, UnsupportedAlgorithm):
        return in_doubt
    return True


def subject_of(certificate: x509.Certificate) -> str:
    """Whom a certificate is of, as in ``"CN=Some TSA,O=Some company"``."""
    try:
        return certificate.subject.rfc4514_string()
    except DAMAGED:
        return "somebody whose name cannot be read"
