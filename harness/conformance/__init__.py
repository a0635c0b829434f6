"""What SGLang's own code captures for layer ids, class by class, held against what `harness.facts` says of it.

Two ways of asking: a setter's own code is run on stand-in objects, from any release's files and without installing it;
and, where SGLang is installed, the real model class runs a prefill and every captured tensor is compared.
"""
