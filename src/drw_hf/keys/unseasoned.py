"""`UnseasonedKey`: a key that waits for its round of public randomness, and marks nothing until then."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from ..errors import InvalidKeyError, KeyTooLargeError
from . import derivation
from .files import UNSEASONED, Content, FileKind
from .frames import forgets_locals
from .kept import KeptSecret, checked_secret
from .key import WatermarkKey
from .seasoning import Seasoning, Terms, base_commitment, seasoned_secret


class UnseasonedKey(KeptSecret):
    """A key whose secret is fixed, and whose numbers wait for one exact round of public randomness.

    Publish :meth:`commitment` with a time stamp, more than ten minutes before the round. When the round is drawn,
    :meth:`season` gives the :class:`WatermarkKey`. Until then there is nothing to mark or to test with: this class has
    no tables, and its secret marks nothing.

    Parameters
    ----------
    template : WatermarkKey
        A key with the settings and binding that the seasoned one is to have, fitted if it shall be; its secret plays
        no part. Keys from arrays cannot be seasoned: whoever chose the arrays chose the numbers.
    terms : Terms
        The round, and what else is fixed before it is drawn.
    secret : bytes, optional
        The 32-byte base secret; by default fresh from the operating system.
    """

    kind: ClassVar[FileKind] = UNSEASONED

    @forgets_locals
    def __init__(self, template: WatermarkKey, terms: Terms, *, secret: bytes | None = None) -> None:
        if not isinstance(template, WatermarkKey) or not isinstance(terms, Terms):
            raise InvalidKeyError("expected a WatermarkKey with the settings, and the Terms of its seasoning")
        if template.arrays is not None:
            raise InvalidKeyError(
                "a key from arrays cannot be seasoned: its numbers are in the arrays, which somebody chose; make one "
                "with WatermarkKey.generate"
            )
        self._secret, self.terms = checked_secret(secret), terms
        self._template = template.replace(secret=derivation.subkey(self._secret, "seasoning/template"))
        self.settings, self.binding = self._template.settings, self._template.binding
        self._commitment = base_commitment(self._secret, *self._template._fields(), terms)

    @property
    def secret(self) -> bytes:
        """The base secret, which marks nothing."""
        return self._secret

    def commitment(self) -> str:
        """C₀, to be stamped and published before the round: 64 hexadecimal digits that show nothing of the key."""
        return self._commitment

    @property
    def identity(self) -> str:
        """The same."""
        return self._commitment

    @forgets_locals
    def season(self, content: bytes | Mapping[str, Any]) -> WatermarkKey:
        """The key, from what the source published for its round (JSON).

        Where the source's signature cannot be verified here (drand, without the extra ``drw_hf[drand]``), the value is
        taken as it is, and whoever verifies the key's evidence can settle it.

        Raises
        ------
        RoundValueError
            When it is the value of another round, or forged.
        """
        document = self.terms.round.read(content)
        value = self.terms.round.value_of(document).value
        seasoning = Seasoning(self._secret, self.terms, document, self._commitment)
        secret = seasoned_secret(self._secret, self._commitment, value)
        return self._template.replace(secret=secret, seasoning=seasoning).as_committed()

    def __eq__(self, other: object) -> bool:
        return self.identity == other.identity if isinstance(other, UnseasonedKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.identity)

    def _content(self) -> Content:
        fields, arrays = self._template._fields()
        return Content(
            {**fields, "secret": self._secret.hex(), "terms": self.terms.to_fields()}, arrays, self._shown()
        )

    @classmethod
    def _from_content(cls, content: Content) -> Self | None:
        fields = dict(content.fields)
        try:
            terms = Terms.from_fields(fields.pop("terms"))
            template = WatermarkKey._from_content(Content(fields, content.arrays, content.shown))
            return None if template is None else cls(template, terms, secret=template.secret)
        except KeyTooLargeError:
            raise
        except (TypeError, KeyError, ValueError, OverflowError, AttributeError):
            return None
