"""The paper's own figures, to set beside what was measured."""

from typing import Any

# The paper's Tables 1 and 2. Accuracy (POS and NER: F1) in per cent, ranges from the least to the largest.
PAPER: dict[str, dict[str, Any]] = {
    "sst2": {
        "map": {"soft": {"jsd": 1.00, "p_snr": 1.00}, "hard": {"jsd": 1.00, "p_snr": 1.00}},
        "merit": {"victim": 92.8, "argmax soft": 92.5, "sampling hard": 88.4, "soft": 92.0, "hard": 91.3},
        "p_snr": {
            "soft": {"negative": (0.008, 4.775), "positive": (18.82, 25.77)},
            "hard": {"negative": (0.011, 4.235), "positive": (16.38, 22.77)},
        },
        "jsd": {
            "soft": {"negative": (0.012, 0.032), "positive": (0.001, 0.002)},
            "hard": {"negative": (0.013, 0.029), "positive": (0.004, 0.005)},
        },
    },
    "mrpc": {
        "map": {"soft": {"jsd": 1.00, "p_snr": 1.00}, "hard": {"jsd": 1.00, "p_snr": 1.00}},
        "merit": {"victim": 87.0, "argmax soft": 86.8, "sampling hard": 85.8, "soft": 86.2, "hard": 86.1},
        "p_snr": {
            "soft": {"negative": (0.128, 2.607), "positive": (17.81, 24.25)},
            "hard": {"negative": (0.012, 3.678), "positive": (16.70, 21.80)},
        },
        "jsd": {
            "soft": {"negative": (0.009, 0.161), "positive": (0.001, 0.002)},
            "hard": {"negative": (0.008, 0.154), "positive": (0.003, 0.007)},
        },
    },
    "pos": {
        "map": {"soft": {"jsd": 0.54, "p_snr": 1.00}, "hard": {"jsd": 0.48, "p_snr": 1.00}},
        "merit": {"victim": 90.7, "argmax soft": 90.7, "sampling hard": 90.3, "soft": 89.8, "hard": 89.7},
        "p_snr": {
            "soft": {"negative": (0.012, 2.309), "positive": (20.59, 28.73)},
            "hard": {"negative": (0.182, 2.869), "positive": (16.23, 25.67)},
        },
        "jsd": {
            "soft": {"negative": (0.016, 0.444), "positive": (0.087, 0.279)},
            "hard": {"negative": (0.010, 0.432), "positive": (0.029, 0.112)},
        },
    },
    "ner": {
        "map": {"soft": {"jsd": 0.84, "p_snr": 1.00}, "hard": {"jsd": 0.40, "p_snr": 1.00}},
        "merit": {"victim": 91.3, "argmax soft": 91.3, "sampling hard": 91.0, "soft": 87.7, "hard": 87.4},
        "p_snr": {
            "soft": {"negative": (0.105, 4.243), "positive": (17.25, 25.22)},
            "hard": {"negative": (0.203, 4.183), "positive": (16.19, 25.49)},
        },
        "jsd": {
            "soft": {"negative": (0.001, 0.416), "positive": (0.002, 0.201)},
            "hard": {"negative": (0.009, 0.274), "positive": (0.011, 0.052)},
        },
    },
}
PAPER_EPSILON = 0.2
PAPER_STUDENTS = 10  # of every kind
