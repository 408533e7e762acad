"""Every error that drw_hf raises, under one base: :class:`DrwError`.

Messages say what was wrong, what was expected and what to do about it. They never hold a key, a passphrase or
anything computed from them but a fingerprint.
"""


class DrwError(Exception):
    """The base of every error drw_hf raises."""


class InvalidInputError(DrwError, ValueError):
    """A call's arguments are out of their range, or do not fit together."""


class InvalidKeyError(InvalidInputError):
    """A key was asked for with parameters that make no watermark."""


class UnseasonedKeyError(InvalidKeyError):
    """A key, or an epoch of a ring, waits for its round of public randomness, and marks nothing until then."""


class RoundValueError(InvalidInputError):
    """What was given as the value of a public round is of another round, forged, or no such thing."""


class MissingKeyError(DrwError):
    """A protected model was loaded or called without its key."""


class KeyMismatchError(DrwError, ValueError):
    """A key belongs to another model: another vocabulary, label set, task or commitment."""


class KeyFileError(DrwError):
    """A key file is absent, damaged, of a newer format, or cannot be written."""


class KeyTooLargeError(InvalidKeyError, KeyFileError):
    """A key was asked for, or is described by a file, that would take more memory than any key needs."""


class WrongPassphraseError(KeyFileError):
    """A sealed key did not open: the passphrase is wrong or missing, or the file was altered."""


class KeySerializationError(DrwError, TypeError):
    """A key was about to be pickled, which would write the secret wherever the pickle goes."""


class UnsupportedModelError(DrwError, ValueError):
    """The model is not a single-label classifier or tagger that can carry a watermark."""


class ConfigurationError(DrwError, ValueError):
    """A setting of a protected model has a value that is not one of its choices."""


class ModelOutputError(DrwError, ArithmeticError):
    """The wrapped model returned something that is not a probability distribution (NaN logits)."""


class ExportRefusedError(DrwError, RuntimeError):
    """A protected model was traced for export, which would bake the key's tables into the artefact."""


class CannotLoadError(DrwError):
    """A model or a tokenizer that was named is not there, or cannot be read."""


class DatasetError(DrwError, ValueError):
    """A data set does not hold what is needed of it: columns, rows, or labels that match."""


class PredictorError(DrwError, RuntimeError):
    """A model, service or function could not be asked, or gave up midway; what it had answered is kept."""


class NoAnswerError(PredictorError):
    """A service did not answer a question: it failed too often in a row, or went on for longer than is read."""


class AnswerError(DrwError, ValueError):
    """An answer is not a prediction: NaN, no distribution, unknown labels."""


class KeptAnswersError(DrwError, OSError):
    """Answers that were kept on disk cannot be read or added to: the file is damaged, or the disk is full."""


class OtherRecordsError(KeptAnswersError):
    """A file of answers or scores is sound, but belongs to something else."""


class QueryLogError(DrwError, ValueError):
    """A query log was altered, cut or put together of strange parts, or does not hold what is asked of it."""


class LogNotWrittenError(DrwError, OSError):
    """A query log cannot be added to: the disk is full, or the folder is not writable. Nothing may be served then."""


class ServiceFailedError(DrwError, RuntimeError):
    """A service did not start; its processes said why."""


class FileNotWrittenError(DrwError, OSError):
    """A result, a probe or a report could not be written; what was there before is still there."""


class HubError(DrwError, OSError):
    """The Hub did not do what was asked of it; nothing was left half-done there."""


class RepositoryAccessError(HubError):
    """A repository does not exist, or this token may not read or write it."""


class RevisionMissingError(HubError):
    """A repository has no such branch, tag or commit."""


class PlainKeyRefusedError(HubError):
    """A plain key was about to go where others can read it."""


class KeyPointerError(HubError, KeyFileError):
    """A model says that its key lies in another repository, and it cannot be had from there."""


class TimestampError(DrwError):
    """A time-stamp token was not granted, is damaged, is of something else, or does not verify."""


class EvidenceError(DrwError, ValueError):
    """A saved finding cannot be replayed: files are missing, damaged, or of another key."""


class StudentDivergedError(DrwError, ArithmeticError):
    """The training of a student ended in numbers that are none."""


class JobsFailedError(DrwError):
    """Some jobs of an experiment were not done; all that could be are."""
