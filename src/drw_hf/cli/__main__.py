"""``python -m drw_hf.cli``, and so ``accelerate launch -m drw_hf.cli distill ...``."""

from . import main

if __name__ == "__main__":
    main()
