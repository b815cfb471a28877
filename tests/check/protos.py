#!/usr/bin/python3
"""protos.py [ROOT]: the .proto files of ROOT/proto/tandem against the project's rules.

Checks names (after buf's STANDARD rules), that everything has a comment, and that tandem.v1 keeps
what the last release has (tests/check/released/VERSION/).  Prints a line for each fault; exits with
1 if there is one.  Needs protoc and the Debian package python3-protobuf.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

HERE = Path(__file__).resolve().parent
RELEASED = HERE / "released"
# The names here are those of other projects' standards.
FOREIGN = ("tandem/otlp/",)

PASCAL = re.compile(r"[A-Z][A-Za-z0-9]*")
LOWER_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
UPPER_SNAKE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")

Field = descriptor_pb2.FieldDescriptorProto
File = descriptor_pb2.FileDescriptorProto
Message = descriptor_pb2.DescriptorProto
Enum = descriptor_pb2.EnumDescriptorProto
Service = descriptor_pb2.ServiceDescriptorProto


class CompileError(Exception):
    """protoc refused a file; the text is what it printed."""


def compile_protos(folders, names):
    """The FileDescriptorSet of the files `names`, looked up in `folders`, with their imports."""
    with tempfile.NamedTemporaryFile() as output:
        command = ["protoc", *(f"-I{folder}" for folder in folders), "--include_imports"]
        command += ["--include_source_info", f"--descriptor_set_out={output.name}", *names]
        result = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if result.returncode:
            raise CompileError(result.stderr.strip())
        return descriptor_pb2.FileDescriptorSet.FromString(output.read())


def own_files(folder):
    """The project's own .proto files below `folder`, as names relative to it."""
    names = (path.relative_to(folder).as_posix() for path in sorted(folder.glob("tandem/**/*.proto")))
    return [name for name in names if not name.startswith(FOREIGN)]


def upper_snake(pascal):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", pascal).upper()


class Style:
    """Collects the faults of one file: names and comments."""

    def __init__(self, file):
        self.file = file
        self.faults = []
        self.places = {tuple(location.path): location for location in file.source_code_info.location}

    def fault(self, path, text):
        place = self.places.get(tuple(path))
        line = f":{place.span[0] + 1}" if place else ""
        self.faults.append(f"proto/{self.file.name}{line}: {text}")

    def item(self, path, kind, name, pattern, comment=True):
        if not pattern.fullmatch(name):
            style = {PASCAL: "PascalCase", LOWER_SNAKE: "lower_snake_case", UPPER_SNAKE: "UPPER_SNAKE_CASE"}
            self.fault(path, f"{kind} {name} is not in {style[pattern]}")
        place = self.places.get(tuple(path))
        if comment and not (place and (place.leading_comments.strip() or place.trailing_comments.strip())):
            self.fault(path, f"{kind} {name} has no comment")

    def package(self):
        folder = str(Path(self.file.name).parent)
        if self.file.package.replace(".", "/") != folder:
            self.fault((2,), f"package {self.file.package} is not that of the folder {folder}")
        if not re.search(r"\.v[1-9][0-9]*$", self.file.package):
            self.fault((2,), f"package {self.file.package} does not end in a version")

    def message(self, path, message):
        # Empty requests and answers say all by their name.
        self.item(path, "message", message.name, PASCAL, comment=bool(message.field))
        for i, field in enumerate(message.field):
            self.item((*path, 2, i), "field", f"{field.name}", LOWER_SNAKE)
        for i, oneof in enumerate(message.oneof_decl):
            synthetic = any(f.proto3_optional and f.oneof_index == i for f in message.field)
            if not synthetic:
                self.item((*path, 8, i), "oneof", oneof.name, LOWER_SNAKE, comment=False)
        for i, nested in enumerate(message.nested_type):
            if not nested.options.map_entry:
                self.message((*path, 3, i), nested)
        for i, enum in enumerate(message.enum_type):
            self.enum((*path, 4, i), enum)

    def enum(self, path, enum):
        self.item(path, "enum", enum.name, PASCAL)
        prefix = upper_snake(enum.name) + "_"
        for i, value in enumerate(enum.value):
            where = (*path, 2, i)
            self.item(where, "enum value", value.name, UPPER_SNAKE, comment=False)
            if not value.name.startswith(prefix):
                self.fault(where, f"enum value {value.name} does not begin with {prefix}")
            if value.number == 0 and not value.name.endswith("_UNSPECIFIED"):
                self.fault(where, f"enum value {value.name} is 0 and does not end in _UNSPECIFIED")

    def service(self, path, service):
        self.item(path, "service", service.name, PASCAL)
        for i, rpc in enumerate(service.method):
            where = (*path, 2, i)
            self.item(where, "rpc", rpc.name, PASCAL)
            for kind, name in (("request", rpc.input_type), ("response", rpc.output_type)):
                wanted = f".{self.file.package}.{rpc.name}{kind.capitalize()}"
                if name != wanted:
                    self.fault(where, f"rpc {rpc.name} has the {kind} {name}, not {wanted}")

    def check(self):
        self.package()
        for i, message in enumerate(self.file.message_type):
            self.message((4, i), message)
        for i, enum in enumerate(self.file.enum_type):
            self.enum((5, i), enum)
        for i, service in enumerate(self.file.service):
            self.service((6, i), service)
        return self.faults


class Api:
    """What clients of the package `package` in the descriptor set `files` can rely on."""

    def __init__(self, files, package):
        self.messages, self.enums, self.rpcs = {}, {}, {}
        http_rules = HttpRules(files)
        for file in files.file:
            if file.package != package:
                continue
            for message in file.message_type:
                self.add(package, message)
            for enum in file.enum_type:
                self.enums[f"{package}.{enum.name}"] = enum
            for service in file.service:
                for rpc in service.method:
                    self.rpcs[f"{package}.{service.name}.{rpc.name}"] = (rpc, http_rules.of(rpc))

    def add(self, scope, message):
        name = f"{scope}.{message.name}"
        self.messages[name] = message
        for nested in message.nested_type:
            self.add(name, nested)
        for enum in message.enum_type:
            self.enums[f"{name}.{enum.name}"] = enum


class HttpRules:
    """Reads google.api.http, an extension that the set `files` itself defines."""

    def __init__(self, files):
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
        if hasattr(message_factory, "MessageFactory"):
            classes = message_factory.MessageFactory(pool).GetMessages([file.name for file in files.file])
        else:
            classes = message_factory.GetMessageClassesForFiles([file.name for file in files.file], pool)
        self.options = classes.get("google.protobuf.MethodOptions")
        self.extension = pool.FindExtensionByName("google.api.http") if self.options else None

    def of(self, rpc):
        """The bindings of `rpc`, as texts: 'get /tandem/v1/models body "*"'."""
        if not self.extension or not rpc.options.ByteSize():
            return set()
        options = self.options.FromString(rpc.options.SerializeToString())
        rule = options.Extensions[self.extension]
        return {self.text(one) for one in (rule, *rule.additional_bindings)}

    @staticmethod
    def text(rule):
        verb = rule.WhichOneof("pattern")
        path = getattr(rule, verb) if verb and verb != "custom" else rule.custom
        return f'{verb} {path} body "{rule.body}"'


def presence(message, field):
    """How a field is there or not, which is part of its meaning."""
    if field.label == Field.LABEL_REPEATED:
        return "repeated"
    if field.proto3_optional:
        return "optional"
    if field.HasField("oneof_index"):
        return f"in oneof {message.oneof_decl[field.oneof_index].name}"
    return "singular"


def type_name(field):
    return field.type_name or Field.Type.Name(field.type)[len("TYPE_"):].lower()


def changes_of_message(name, old, new):
    by_number = {field.number: field for field in new.field}
    for field in old.field:
        now = by_number.get(field.number)
        if now is None:
            numbers = any(r.start <= field.number < r.end for r in new.reserved_range)
            if not (numbers and field.name in new.reserved_name):
                yield f"{name}.{field.name} = {field.number} is gone; reserve its number and its name"
            continue
        for what, before, after in (
            ("name", field.name, now.name),
            ("JSON name", field.json_name, now.json_name),
            ("type", type_name(field), type_name(now)),
            ("presence", presence(old, field), presence(new, now)),
        ):
            if before != after:
                yield f"{name}.{field.name} = {field.number}: {what} {before} became {after}"


def changes_of_enum(name, old, new):
    now = {value.name: value.number for value in new.value}
    for value in old.value:
        if value.name not in now:
            yield f"{name}: value {value.name} = {value.number} is gone"
        elif now[value.name] != value.number:
            yield f"{name}: value {value.name} = {value.number} became {now[value.name]}"


def changes_of_rpc(name, old, new):
    (before, old_http), (after, new_http) = old, new
    for what in ("input_type", "output_type", "client_streaming", "server_streaming"):
        if getattr(before, what) != getattr(after, what):
            yield f"{name}: {what} {getattr(before, what)} became {getattr(after, what)}"
    for binding in sorted(old_http - new_http):
        yield f"{name}: the HTTP binding {binding} is gone"


def breaking_changes(old, new):
    """What in `new`, a descriptor set, breaks clients of tandem.v1 as `old` has it; a text each."""
    before, after = Api(old, "tandem.v1"), Api(new, "tandem.v1")
    for kind, olds, news, changes in (
        ("message", before.messages, after.messages, changes_of_message),
        ("enum", before.enums, after.enums, changes_of_enum),
        ("rpc", before.rpcs, after.rpcs, changes_of_rpc),
    ):
        for name, one in olds.items():
            if name in news:
                yield from changes(name, one, news[name])
            else:
                yield f"{kind} {name} is gone"


def last_release(released):
    """The folder of the highest version below `released`."""
    return max(released.iterdir(), key=lambda folder: [int(part) for part in folder.name.split(".")])


def check(root, released=RELEASED):
    """The faults of the .proto files of the tree at `root`, one line each."""
    folder = root / "proto"
    names = own_files(folder)
    try:
        files = compile_protos([folder], names)
    except CompileError as error:
        return str(error).splitlines()
    faults = [fault for file in files.file if file.name in names for fault in Style(file).check()]
    release = last_release(released)
    # The release imports google/api, which are the tree's own.
    old = compile_protos([release, folder], own_files(release))
    faults += [f"tandem.v1 against {release.name}: {change}" for change in breaking_changes(old, files)]
    return faults


def main():
    faults = check(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[1])
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
