"""What can be changed in a module: comparisons, conditions, constants, calls, assignments."""

import ast
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from itertools import accumulate
from typing import Final, NamedTuple

KINDS: Final = ("comparison", "condition", "constant", "call", "assignment")

COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


class Change(NamedTuple):
    """A change of a file.

    file -- its path from the root of the checkout
    start, end -- what is replaced, in bytes
    statement -- line and column of the statement that it is in
    local -- whether that statement is in a function, so that it runs when the function is called
    """

    file: str
    kind: str
    start: int
    end: int
    new: str
    statement: tuple[int, int]
    local: bool

    def apply(self, source: bytes) -> bytes:
        """Return the changed content of the file."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        """Return the change as a unified diff."""
        before, after = source.decode(), self.apply(source).decode()
        lines = unified_diff(before.splitlines(True), after.splitlines(True), n=2)
        return "".join(list(lines)[2:])


def changes(file: str, source: bytes) -> Iterator[Change]:
    """Yield all possible changes of a file with this content."""
    starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]
    for (kind, node, new), statement, local in _walk(ast.parse(source), None, local=False):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        position = (statement.lineno, statement.col_offset)
        yield Change(file, kind, start, end, new, position, local)


Found = tuple[str, ast.expr | ast.stmt, str]


def _walk(
    node: ast.AST, statement: ast.stmt | None, *, local: bool
) -> Iterator[tuple[Found, ast.stmt, bool]]:
    statement = node if isinstance(node, ast.stmt) else statement
    if statement is not None and isinstance(node, ast.expr | ast.stmt):
        for found in (*_conditions(node), *_others(node, local=local)):
            yield found, statement, local
    parts: Iterable[ast.AST | None] = ast.iter_child_nodes(node)
    match node:
        case ast.JoinedStr() | ast.Call(func=ast.Name("TypeVar" | "cast")):
            parts = []  # positions in an f-string are not exact before Python 3.12
        case ast.Expr(ast.Constant()) | ast.keyword("frozen") | ast.Import() | ast.ImportFrom():
            parts = []
        case ast.FunctionDef() | ast.AsyncFunctionDef():  # not its annotations
            parts = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]
            for inner in node.body:
                yield from _walk(inner, statement, local=True)
    for part in filter(None, parts):
        yield from _walk(part, statement, local=local)


def _conditions(node: ast.AST) -> Iterator[Found]:
    match node:
        case ast.Compare(left, [operator, *operators], others):
            other = ast.Compare(left, [COMPARISONS[type(operator)](), *operators], others)
            yield "comparison", node, f"({ast.unparse(other)})"
        case ast.BoolOp(operator, values):
            swapped = ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            yield "condition", node, f"({ast.unparse(swapped)})"
        case ast.UnaryOp(ast.Not(), operand):
            yield "condition", node, f"({ast.unparse(operand)})"
        case ast.If(test) | ast.While(test) | ast.IfExp(test) if isinstance(
            test, ast.Name | ast.Attribute | ast.Call | ast.Await | ast.NamedExpr
        ):
            yield "condition", test, f"(not ({ast.unparse(test)}))"


def _others(node: ast.AST, *, local: bool) -> Iterator[Found]:
    match node:
        case ast.Constant(bool(value)):
            yield "constant", node, repr(not value)
        case ast.Constant(int(value) | float(value)):
            yield "constant", node, repr(value + 1)
        case ast.Constant(str(value)) if not any(map(str.isspace, value)):  # no prose
            yield "constant", node, repr(value + "X")
        case ast.Constant(bytes(value)):
            yield "constant", node, repr(value + b"X")
        case ast.Expr(ast.Call() | ast.Await(ast.Call())):
            yield "call", node, "pass"
        case (
            ast.AugAssign()
            | ast.Assign([ast.Attribute() | ast.Subscript()])
            | ast.AnnAssign(target=ast.Attribute(), value=ast.expr())
        ) if local:  # not of a name: any caller notices that it is missing
            yield "assignment", node, "pass"
