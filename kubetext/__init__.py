"""Read and write the texts that Go and Kubernetes define, with the same error messages.

| module | content |
|---|---|
| `utf8` | U+FFFD for bytes and surrogates that are no characters |
| `quoting` | `%q`, and JSON with Go's escapes |
| `strconv` | integers, floats and booleans |
| `durations` | `1m30s` |
| `quantity` | `1.5Gi`: parse, compare, add, print |
| `names` | labels, subdomains, label keys and values, generated names |
| `printing` | `%v` and `%s` of decoded JSON |
| `sorting` | sorting in slices, so that other threads can run |

The modules are the public names. They import nothing of `apiserver`, `kubecel` or `structuredmerge`.
"""
