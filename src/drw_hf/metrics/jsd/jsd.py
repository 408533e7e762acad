"""JSD as a metric of 🤗 Evaluate. The computation is :func:`drw_hf.detection.jsd`."""

import datasets
import evaluate

from drw_hf.detection import jsd
from drw_hf.metrics import PairedInputs

DESCRIPTION = """
DeepJudge's score, the baseline of the DRW paper: the mean Jensen-Shannon divergence between a suspect's answers and
the victim's, in nats. A small value says that the suspect answers as the victim does.
"""

INPUTS = """
Args:
    predictions: the suspect's probabilities, a row of m for every probe.
    references: the victim's probabilities for the same probes and labels.
Returns:
    jsd: from 0 (equal) to ln 2 (no class in common).
"""

CITATION = """
@inproceedings{chen-etal-2022-copy,
    title = "Copy, Right? A Testing Framework for Copyright Protection of Deep Learning Models",
    author = "Chen, Jialuo and Wang, Jingyi and Peng, Tinglan and Sun, Youcheng and Cheng, Peng and Ji, Shouling and
              Ma, Xingjun and Li, Bo and Song, Dawn",
    booktitle = "IEEE Symposium on Security and Privacy",
    year = "2022",
}
"""


class Jsd(PairedInputs, evaluate.Metric):
    n_dims = 2
    expected = "predictions=the suspect's rows of probabilities, references=the victim's for the same probes"

    def _info(self):
        row = datasets.Sequence(datasets.Value("float64"))
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation=CITATION,
            inputs_description=INPUTS,
            features=datasets.Features({"predictions": row, "references": row}),
        )

    def _compute(self, predictions, references):
        return {"jsd": jsd(predictions, references)}
