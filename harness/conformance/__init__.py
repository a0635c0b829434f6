"""The states that SGLang's own code captures for layer ids, class by class, compared with `harness.facts`.

There are two ways to ask: a setter's own code is run on stand-in objects, from any release's files and without
installing it; and if SGLang is installed, the real model class runs a prefill and every captured tensor is compared.
"""
