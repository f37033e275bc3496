"""Random CEL expressions: mostly of right types, some of wrong ones, some that are not CEL at all. One seed, one sequence.

Knows the signatures of every library of Kubernetes' environment, and nothing of how they are implemented.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

DEPTH = 4
MOST_BYTES = 2000

# result, then the call: `receiver.name(arguments)` or `name(arguments)`. T, K and V are any type, the same throughout one line.
SIGNATURES = """
int size(string) | int size(bytes) | int size(list(T)) | int size(map(K,V)) | int string.size() | int list(T).size()
int map(K,V).size() | int int(int) | int int(uint) | int int(double) | int int(string) | int int(timestamp)
uint uint(int) | uint uint(double) | uint uint(string) | double double(int) | double double(uint)
double double(string) | string string(int) | string string(uint) | string string(double) | string string(bool)
string string(bytes) | string string(timestamp) | string string(duration) | bytes bytes(string) | bool bool(string)
dyn dyn(T) | type type(T) | timestamp timestamp(string) | timestamp timestamp(int) | duration duration(string)
duration duration(int) | bool string.contains(string) | bool string.startsWith(string) | bool string.endsWith(string)
bool string.matches(string) | bool matches(string,string) | int timestamp.getFullYear()
int timestamp.getMonth(string) | int timestamp.getDayOfWeek() | int timestamp.getDayOfYear()
int timestamp.getHours(string) | int duration.getHours() | int duration.getMinutes() | int duration.getSeconds()
int duration.getMilliseconds() | int timestamp.getDate() | string string.charAt(int) | int string.indexOf(string)
int string.indexOf(string,int) | int string.lastIndexOf(string) | string string.lowerAscii()
string string.upperAscii() | string string.replace(string,string) | string string.replace(string,string,int)
list(string) string.split(string) | list(string) string.split(string,int) | string string.substring(int)
string string.substring(int,int) | string string.trim() | string list(string).join()
string list(string).join(string) | string string.format(list(dyn)) | string strings.quote(string)
bool list(int).isSorted() | bool list(string).isSorted() | bool list(double).isSorted() | int list(int).sum()
double list(double).sum() | duration list(duration).sum() | int list(int).min() | int list(int).max()
string list(string).min() | double list(double).max() | int list(T).indexOf(T) | int list(T).lastIndexOf(T)
list(T) list(T).slice(int,int) | list(T) list(list(T)).flatten() | list(T) list(T).reverse()
list(T) list(T).distinct() | list(int) list(int).sort() | list(string) list(string).sort()
list(int) lists.range(int) | list(dyn) list(dyn).flatten(int) | bool sets.contains(list(T),list(T))
bool sets.equivalent(list(T),list(T)) | bool sets.intersects(list(T),list(T)) | string string.find(string)
list(string) string.findAll(string) | list(string) string.findAll(string,int) | url url(string) | bool isURL(string)
string url.getScheme() | string url.getHost() | string url.getHostname() | string url.getPort()
string url.getEscapedPath() | map(string,list(string)) url.getQuery() | ip ip(string) | bool isIP(string)
bool ip.isCanonical(string) | int ip.family() | bool ip.isLoopback() | bool ip.isUnspecified()
bool ip.isGlobalUnicast() | bool ip.isLinkLocalMulticast() | bool ip.isLinkLocalUnicast() | string string(ip)
cidr cidr(string) | bool isCIDR(string) | bool cidr.containsIP(ip) | bool cidr.containsIP(string)
bool cidr.containsCIDR(cidr) | bool cidr.containsCIDR(string) | ip cidr.ip() | cidr cidr.masked()
int cidr.prefixLength() | string string(cidr) | format format.dns1123Label() | optional(format) format.named(string)
optional(list(string)) format.validate(string) | quantity quantity(string) | bool isQuantity(string)
int quantity.sign() | bool quantity.isInteger() | int quantity.asInteger() | double quantity.asApproximateFloat()
quantity quantity.add(quantity) | quantity quantity.add(int) | quantity quantity.sub(quantity)
bool quantity.isLessThan(quantity) | bool quantity.isGreaterThan(quantity) | int quantity.compareTo(quantity)
semver semver(string) | semver semver(string,bool) | bool isSemver(string) | bool isSemver(string,bool)
int semver.major() | int semver.minor() | int semver.patch() | bool semver.isLessThan(semver)
bool semver.isGreaterThan(semver) | int semver.compareTo(semver) | optional(T) optional.of(T)
optional(T) optional.ofNonZeroValue(T) | optional(T) optional.none() | bool optional(T).hasValue()
T optional(T).value() | T optional(T).orValue(T) | optional(T) optional(T).or(optional(T))
list(T) optional.unwrap(list(optional(T))) | list(T) list(optional(T)).unwrapOpt() | optional(T) list(T).first()
optional(T) list(T).last()
"""

# Operators by result: the text with places for operands, and their types.
OPERATORS = """
bool {} && {}: bool bool | bool {} || {}: bool bool | bool !{}: bool | bool {} == {}: T T | bool {} != {}: T T
bool {} in {}: T list(T) | bool {} in {}: K map(K,V) | bool {} < {}: int int | bool {} <= {}: int double
bool {} > {}: string string | bool {} >= {}: uint int | bool {} < {}: timestamp timestamp
bool {} > {}: duration duration | bool {} <= {}: bytes bytes | bool {} < {}: bool bool | int {} + {}: int int
int {} - {}: int int | int {} * {}: int int | int {} / {}: int int | int {} % {}: int int | int -{}: int
uint {} + {}: uint uint | uint {} * {}: uint uint | double {} / {}: double double | double {} - {}: double double
double -{}: double | string {} + {}: string string | bytes {} + {}: bytes bytes | list(T) {} + {}: list(T) list(T)
T {} ? {} : {}: bool T T | timestamp {} + {}: timestamp duration | duration {} - {}: timestamp timestamp
duration {} + {}: duration duration | T {}[{}]: list(T) int | V {}[{}]: map(K,V) K | optional(T) {}[?{}]: list(T) int
optional(V) {}[?{}]: map(K,V) K
"""

# Calls of macros on a range: the loop's variable stands for X, a second one for Y.
MACROS = """
bool {}.all({X}, {}): list(X) bool | bool {}.exists({X}, {}): list(X) bool
bool {}.exists_one({X}, {}): map(X,V) bool | list(T) {}.map({X}, {}): list(X) T
list(T) {}.map({X}, {}, {}): list(X) bool T | list(X) {}.filter({X}, {}): list(X) bool
bool {}.all({X}, {Y}, {}): map(X,Y) bool | bool {}.exists({X}, {Y}, {}): list(Y) bool
bool {}.existsOne({X}, {Y}, {}): map(X,Y) bool | list(T) {}.transformList({X}, {Y}, {}): map(X,Y) T
map(X,T) {}.transformMap({X}, {Y}, {}): map(X,Y) T | map(X,T) {}.transformMap({X}, {Y}, {}, {}): map(X,Y) bool T
T cel.bind({X}, {}, {}): X T | optional(T) {}.optMap({X}, {}): optional(X) T
optional(T) {}.optFlatMap({X}, {}): optional(X) optional(T)
"""

SCALARS = ("int", "string", "bool", "double", "uint", "bytes", "duration", "timestamp")
OTHERS = ("quantity", "semver", "ip", "cidr", "url", "dyn", "any", "null", "type", "format")
# fmt: off
WORDS = (
    "", "a", "x", "dra.example.com", "1", "-7", "1.5", "1Gi", "500m", "v1.2.3", "1.2.3-rc.1", "10.0.0.1", "::1",
    "fe80::1%eth0", "10.0.0.0/8", "2001:db8::/32", "https://a.example:8443/p?q=1&q=2", "1h30m",
    "2024-02-29T12:00:00Z", "America/New_York", "a,b,,c", "[a-z]+(x)?", "(", "é世界🎉", "dns1123Label",
    "%s %d %.3f", "true", '\\\\', "*", "a{2,1}", '\\\\pN+', "%d%%",
)
# fmt: on


class Rule(NamedTuple):
    """One way to make an expression of a type: a text with `{}` for each operand, and the operands' types."""

    text: str
    operands: tuple[str, ...]


def _signature_rules() -> Iterator[tuple[str, Rule]]:
    for line in re.split(r"[\n|]", SIGNATURES.strip()):
        result, call = _split(line)
        head, _, arguments = call.rpartition("(") if call.endswith("()") else _opened(call)
        operands = _types(arguments.removesuffix(")"))
        places = ", ".join("{}" for _ in operands)
        receiver, dot, name = _receiver(head)
        if dot:
            yield result, Rule(f"{{}}.{name}({places})", (receiver, *operands))
        else:
            yield result, Rule(f"{name}({places})", tuple(operands))


NAMESPACES = ("optional", "sets", "lists", "strings", "format", "ip")


def _receiver(head: str) -> tuple[str, str, str]:
    """The text before the last dot is a receiver, unless it is the namespace of the function."""
    receiver, dot, name = head.rpartition(".")
    qualified = receiver in NAMESPACES and (
        receiver not in ("ip", "format") or name in ("isCanonical", "named", "dns1123Label")
    )
    return ("", "", head) if not dot or qualified else (receiver, dot, name)


def _split(line: str) -> tuple[str, str]:
    """The type at the beginning, and the rest."""
    line = line.strip()
    depth = 0
    for at, character in enumerate(line):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == " " and depth == 0:
            return line[:at], line[at + 1 :]
    return line, ""


def _opened(call: str) -> tuple[str, str, str]:
    """A call up to the parenthesis of its arguments, and these."""
    depth = 0
    for at in range(len(call) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(call[at], 0)
        if depth == 0:
            return call[:at], "(", call[at + 1 :]
    raise ValueError(call)


def _types(text: str) -> list[str]:
    """Types with commas between them."""
    found, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append(text[start:at])
            start = at + 1
    return [*found, text[start:]] if text else []


def _operator_rules(table: str) -> Iterator[tuple[str, Rule]]:
    for line in re.split(r"\n| \| ", table.strip()):
        result, rest = _split(line)
        text, _, operands = rest.rpartition(": ")
        yield result, Rule(text, tuple(operands.split()))


def _by_result(rules: Iterator[tuple[str, Rule]]) -> dict[str, list[tuple[str, Rule]]]:
    """The rules by the outermost name of what they make, those that make anything under ""."""
    found = defaultdict(list)
    for result, rule in rules:
        found["" if result in ("T", "V") else result.partition("(")[0]].append((result, rule))
    return found


CALLS = _by_result(_signature_rules())
COMPUTED = _by_result(_operator_rules(OPERATORS))
FOLDED = _by_result(_operator_rules(MACROS))


class Expressions:
    """A sequence of random expressions. `leaves` are expressions over declared variables, with their types."""

    def __init__(self, seed: int, leaves: dict[str, tuple[str, ...]]) -> None:
        self._random = random.Random(seed)
        self._leaves = leaves
        self._scope: list[tuple[str, str]] = []

    def __iter__(self) -> Iterator[str]:
        while True:
            yield self.draw()

    def draw(self, of: str = "bool") -> str:
        """The next one, at most MOST_BYTES long; of this type, if its types are right."""
        while True:
            self._scope.clear()
            text = self._make(of if self._random.random() < 0.9 else self._type(), DEPTH)
            if self._random.random() < 0.08:
                text = self._spoiled(text)
            if len(text.encode()) <= MOST_BYTES:
                return text

    def _type(self, depth: int = 2) -> str:
        choose = self._random.random()
        if choose < 0.6 or depth == 0:
            return self._random.choice(SCALARS)
        if choose < 0.75:
            return self._random.choice(OTHERS)
        if choose < 0.87:
            return f"list({self._type(depth - 1)})"
        if choose < 0.96:
            return f"map({self._random.choice(('string', 'int', 'string', 'bool', 'uint'))},{self._type(depth - 1)})"
        return f"optional({self._type(depth - 1)})"

    def _make(self, of: str, depth: int) -> str:
        """An expression of the type; now and then of another one."""
        if self._random.random() < 0.02:
            of = self._type()
        known = [name for name, type_ in self._scope if type_ == of]
        if known and self._random.random() < 0.6:
            return self._random.choice(known)
        if depth <= 0:
            return self._leaf(of)
        table = self._random.choice((CALLS, CALLS, COMPUTED, COMPUTED, FOLDED, None))
        rules = [] if table is None else table.get(of.partition("(")[0], []) + table.get("", [])
        if not rules:
            return self._leaf(of)
        result, rule = self._random.choice(rules)
        bound = _unify(result, of)
        return self._leaf(of) if bound is None else self._filled(rule, bound, depth)

    def _filled(self, rule: Rule, bound: dict[str, str], depth: int) -> str:
        """The rule's text with operands; those after the first see the variables of a macro."""
        names = {x: f"{x.lower()}{len(self._scope)}" for x in ("X", "Y") if f"{{{x}}}" in rule.text}
        self._bind(rule, bound)
        made = []
        for at, operand in enumerate(rule.operands):
            if at == 1:
                self._scope.extend((name, bound[x]) for x, name in names.items())
            made.append(self._make(_PARAMETER.sub(lambda m: bound[m[0]], operand), depth - 1))
        if names:
            del self._scope[-len(names) :]
        return rule.text.format(*map(_enclosed, made), **names)

    def _bind(self, rule: Rule, bound: dict[str, str]) -> None:
        """Chooses what the result leaves open. Keys have types of keys, and the first variable over a list is its index."""
        keys = {parameter for parameter in "KX" if any(f"map({parameter}" in operand for operand in rule.operands)}
        for parameter in _PARAMETER.findall(" ".join(rule.operands)):
            bound.setdefault(parameter, self._key() if parameter in keys else self._type(1))
        if "{Y}" in rule.text:
            bound.setdefault("X", "int")

    def _key(self) -> str:
        return self._random.choice(("string", "int", "bool", "uint"))

    def _leaf(self, of: str) -> str:
        declared = self._leaves.get(of)
        if declared and self._random.random() < 0.5:
            return self._random.choice(declared)
        draw = self._random
        name, _, inner = of.partition("(")
        match name:
            case "int":
                return str(draw.choice((0, 1, -1, 2, 7, 63, 1000, 2**31, 2**63 - 1, -(2**63), draw.randrange(100))))
            case "uint":
                return f"{draw.choice((0, 1, 2, 63, 2**64 - 1, draw.randrange(100)))}u"
            case "double":
                return draw.choice(("0.0", "1.5", "-2.25", "1e3", ".5", "1e-320", "1e308", "123456789.125"))
            case "bool":
                return draw.choice(("true", "false"))
            case "string":
                return self._quoted(draw.choice(WORDS))
            case "bytes":
                return draw.choice(("b'abc'", "b''", "b'\\xff\\x00'", "b'é'", 'b"""a"""'))
            case "null":
                return "null"
            case "type":
                return draw.choice(("int", "string", "list", "map", "type", "null_type", "bool"))
            case "list":
                element = inner.removesuffix(")")
                return f"[{', '.join(self._make(element, 0) for _ in range(draw.randrange(4)))}]"
            case "map":
                key, value = _types(inner.removesuffix(")"))
                return (
                    f"{{{', '.join(f'{self._leaf(key)}: {self._make(value, 0)}' for _ in range(draw.randrange(3)))}}}"
                )
            case "optional":
                return draw.choice(("optional.none()", f"optional.of({self._make(inner.removesuffix(')'), 0)})"))
            case "dyn" | "any":
                return f"dyn({self._make(draw.choice(SCALARS), 0)})"
            case "format":
                return draw.choice(
                    ("format.dns1123Label()", "format.uuid()", "format.byte()", "format.named('date').value()")
                )
        return f"{name}({self._quoted(draw.choice(EXAMPLES[name]))})"

    def _quoted(self, text: str) -> str:
        quote = self._random.choice(("'", '"', "'", '"', "'''", 'r"'))
        if quote == 'r"':
            return f'r"{text}"' if '"' not in text else repr(text)
        return f"{quote}{text}{quote}"

    def _spoiled(self, text: str) -> str:
        """With a few places changed: rarely CEL any more."""
        draw = self._random
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(text) + 1)
            end = min(len(text), at + draw.choice((0, 0, 1, 1, 3)))
            put = draw.choice(NOISE)
            text = text[:at] + put + text[end:]
        return text


EXAMPLES = {
    "quantity": ("1Gi", "500m", "1e3", "x", "-2"),
    "semver": ("1.2.3", "v1.2", "1.2.3-rc.1+b", "x"),
    "ip": ("10.0.0.1", "::1", "::ffff:1.2.3.4", "10.0.0.01"),
    "cidr": ("10.0.0.0/8", "2001:db8::/32", "10.0.0.1/33"),
    "url": ("https://a.example:8443/p?q=1", "/a/b", "a"),
    "timestamp": ("2024-02-29T12:00:00Z", "2024-02-30T12:00:00Z", "0001-01-01T00:00:00Z", "2024-01-01T00:00:00+02:00"),
    "duration": ("1h30m", "-1.5s", "1x", "0s"),
}
# fmt: off
NOISE = (
    "", " ", "(", ")", "[", "]", "{", "}", ".", ",", "?", ":", "!", "-", "+", "&&", "||", "=", "==", "in", "'",
    '"', '\\', "`", "@", "#", "$", "0x", "1.", "u", '\n', '\t', "é", "世", '\u200b', "//", "null", "has(",
    "true", "as", "?.", "[?", ";", "~", "'''", '\x00',
)
# fmt: on


_PARAMETER = re.compile(r"\b[TKVXY]\b")
_SIMPLE = re.compile(r"[\w.]+|'[^']*'|\"[^\"]*\"|\w+\([^()]*\)|\[[^\[\]]*\]")


def _enclosed(text: str) -> str:
    """In parentheses, unless it binds tightly enough without."""
    return text if _SIMPLE.fullmatch(text) else f"({text})"


def _unify(result: str, of: str) -> dict[str, str] | None:
    """Bindings of T, K, V and X with which `result` equals `of`."""
    if result in ("T", "K", "V", "X"):
        return {result: of}
    name, _, inner = result.partition("(")
    wanted, _, given = of.partition("(")
    if name != wanted or not inner:
        return {} if result == of else None
    bound: dict[str, str] = {}
    for part, actual in zip(_types(inner.removesuffix(")")), _types(given.removesuffix(")")), strict=True):
        found = _unify(part, actual)
        if found is None:
            return None
        bound |= found
    return bound


DEVICE: dict[str, tuple[str, ...]] = {
    "string": ("device.driver",),
    "bool": ("device.allowMultipleAllocations", "device.attributes['dra.example.com'].ok"),
    "any": ("device.attributes['dra.example.com'].model", "device.attributes['a'].b", "device.attributes['a']['b']"),
    "dyn": ("dyn(device)", "device.attributes['dra.example.com'].model"),
    "quantity": ("device.capacity['dra.example.com'].memory", "device.capacity['a']['b']"),
    "map(string,any)": ("device.attributes['dra.example.com']",),
    "map(string,quantity)": ("device.capacity['dra.example.com']",),
    "map(string,map(string,any))": ("device.attributes",),
}
"""First operands of a selector of devices."""
