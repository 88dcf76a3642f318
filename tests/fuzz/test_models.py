"""Model folders that were valid once, or are traps: loaded, and asked for the embedding of a text."""

import json

import pytest
import torch
from hypothesis import strategies as st

import clip_geometry as cg
from fuzz.outcome import contents, fuzzed, outcome, sandbox
from fuzz.strategies import one_damaged

TRAP = b"open('canary', 'w').close()\n"  # whoever imports it runs it
AUTO_MAP = {"AutoTokenizer": ["caveat.Trap", "caveat.Trap"], "AutoConfig": "caveat.Trap", "AutoModel": "caveat.Trap"}
AUTO_MAP |= {"AutoImageProcessor": "caveat.Trap", "AutoProcessor": "caveat.Trap"}


def trapped(files):
    """The same folder, whose JSON asks for the code beside it wherever a library may look for that."""
    files = files | {"caveat.py": TRAP}
    for name, content in files.items():
        if name.endswith("config.json"):
            values = json.loads(content) | {"auto_map": AUTO_MAP, "trust_remote_code": True}
            if "model_cfg" in values:
                values["model_cfg"]["text_cfg"]["tokenizer_kwargs"] = {"trust_remote_code": True}
            files[name] = json.dumps(values).encode()
    return files


FOLDERS = {  # of support/encoder_files.py
    "local-dir": "with_weights",
    "hf-clip": "hf_clip_folder",
    "hf-text": "bert_folder",
    "hidden-states": "bert_folder",
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_model_folders(kind, request):
    files = contents(request.getfixturevalue(FOLDERS[kind]))

    @fuzzed(7, files=st.sampled_from([files, trapped(files)]).flatmap(one_damaged), fresh=st.booleans())
    def holds(files, fresh):
        with sandbox(files) as folder, torch.random.fork_rng():
            config = outcome(cg.encoders.resolve_encoder, f"{kind}:{folder}", **({"fresh": True} if fresh else {}))
            encoder = config and outcome(cg.encoders.load_encoder, config, "cpu")
            if encoder:
                outcome(lambda: encoder.text_rows(encoder.tokenize(["red circle"])))

    holds()
