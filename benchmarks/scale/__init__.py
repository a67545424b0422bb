"""How far one operator carries: hundreds and thousands of services on the local cluster, their engines emulated."""
