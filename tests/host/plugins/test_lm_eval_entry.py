"""What Python reads when it starts, so that lm-eval finds the model `kvdrive`, costs other programs nothing."""

import subprocess
import sys


def test_a_program_without_lm_eval_pays_one_small_module():
    look = "import sys; print([name for name in ('kvdrive', 'typing', 'torch') if name in sys.modules])"
    found = "import kvdrive_lm_eval, sys; assert kvdrive_lm_eval.AfterModels in sys.meta_path"
    plain = subprocess.run([sys.executable, "-c", f"{look}; {found}"], capture_output=True, text=True)
    assert (plain.stdout, plain.stderr) == ("[]\n", "")
