"""P_snr as a metric of 🤗 Evaluate. The computation is :func:`drw_hf.p_snr`."""

import datasets
import evaluate

from drw_hf import p_snr
from drw_hf.errors import InvalidInputError
from drw_hf.metrics import PairedInputs

DESCRIPTION = """
How far the cosine of a DRW watermark stands out in a suspect's answers: the Lomb-Scargle power at the watermark's
frequency over the mean power elsewhere. Noise gives about 1, a perfect copy of the mark about 40.
"""

INPUTS = """
Args:
    predictions: the suspect's probability of the target class, for every probe.
    references: the key's phase hash of every probe, in [0, 1].
    frequency: the key's angular frequency f_w, in radians (default 16.0).
    max_frequency: where the periodogram ends, in radians (default 80 π).
    window: the full width of the signal's window, in radians (default 0.01).
Returns:
    p_snr: at least 0.
"""

CITATION = """
@inproceedings{zhao-etal-2022-distillation,
    title = "Distillation-Resistant Watermarking for Model Protection in {NLP}",
    author = "Zhao, Xuandong and Li, Lei and Wang, Yu-Xiang",
    booktitle = "Findings of the Association for Computational Linguistics: EMNLP 2022",
    year = "2022",
    pages = "5073--5084",
    doi = "10.18653/v1/2022.findings-emnlp.370",
}
"""


class PSnr(PairedInputs, evaluate.Metric):
    n_dims = 1
    expected = "predictions=the suspect's probabilities of the target class, references=the probes' hash values"

    def __init__(self, *arguments, num_process=1, **settings):
        if num_process != 1:
            raise InvalidInputError(
                f"p_snr does not work with num_process={num_process}, for which evaluate would write the key's hash "
                "values to disk; gather the answers in one process and load the metric there without num_process"
            )
        super().__init__(*arguments, **settings)

    def _info(self):
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation=CITATION,
            inputs_description=INPUTS,
            features=datasets.Features(
                {"predictions": datasets.Value("float64"), "references": datasets.Value("float64")}
            ),
        )

    def _compute(self, predictions, references, frequency=16.0, **settings):
        return {"p_snr": p_snr(references, predictions, frequency, **settings)}
