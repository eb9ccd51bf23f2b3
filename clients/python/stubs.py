"""Writes the generated part of the package, src/evalfleet/<domain>/v1, from the protocol.

    python stubs.py PROTO SOURCES

PROTO is the folder of the protocol, SOURCES that of the package. The generated code needs grpcio and protobuf alone:
rules of validation, HTTP mappings and our own options, which are for servers, are left out of it with the files that
define them.
"""

import shutil
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

# Packages that are no API: guest is spoken within a sandbox, options describes the schema.
INTERNAL = ("evalfleet/guest/", "evalfleet/options/")

# Reasons that are exceptions of Python as well.
BUILT_IN = {"DeadlineExceeded": ["TimeoutError"]}


def published(name: str) -> bool:
    """Whether a file is part of the API for clients."""
    return name.startswith("evalfleet/") and not name.startswith(INTERNAL)


def run(*arguments: str) -> None:
    """Runs protoc, with the sources of Google's own types."""
    if code := protoc.main(["protoc", *arguments]):
        sys.exit(code)


def without_options(image: FileDescriptorSet) -> FileDescriptorSet:
    """The files of the API, without options that are extensions and without imports that only these need."""
    plain = FileDescriptorSet()
    for file in image.file:
        if not published(file.name) and not file.name.startswith("google/protobuf/"):
            continue
        kept = plain.file.add()
        kept.CopyFrom(file)
        kept.DiscardUnknownFields()  # No extension is registered in this process, so each is unknown here.
        del kept.dependency[:]
        kept.dependency.extend(d for d in file.dependency if published(d) or d.startswith("google/protobuf/"))
        if file.public_dependency or file.weak_dependency:
            sys.exit(f"{file.name}: public and weak imports are not expected")
        # Positions of imports no longer fit.
        for place in [p for p in kept.source_code_info.location if p.path[:1] == [3]]:
            kept.source_code_info.location.remove(place)
    return plain


def reasons(image: FileDescriptorSet) -> str:
    """The module with an exception for each reason of an error."""
    pool = descriptor_pool.DescriptorPool()
    for file in image.file:
        pool.AddSerializedFile(file.SerializeToString())
    options = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.EnumValueOptions"))
    retry: Any = pool.FindExtensionByName("evalfleet.options.v1.retry")
    again = {0: "no", 1: "yes", 2: "yes, not begun"}
    (file,) = (file for file in image.file if file.name == "evalfleet/errors/v1/error_reason.proto")
    comments = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}
    classes = {}
    for position, value in enumerate(file.enum_type[0].value[1:], start=1):
        reason = value.name.removeprefix("ERROR_REASON_")
        text = " ".join(
            line.strip() for line in comments[5, 0, 2, position].splitlines() if not line.strip().startswith("{")
        )
        text = text.split(" Code ")[0]
        set_to: int = options.FromString(value.options.SerializeToString()).Extensions[retry]
        name = "".join(word.capitalize() for word in reason.split("_"))
        doc = "\n    ".join(textwrap.wrap(f'"""{text}"""', 116))
        bases = ", ".join(["EvalfleetError", *BUILT_IN.get(name, [])])
        classes[name] = f'class {name}({bases}):\n    {doc}\n\n    reason = "{reason}"\n'
        if set_to:
            classes[name] += f'    again = "{again[set_to]}"\n'
    names = "".join(f'    "{name}",\n' for name in sorted(classes))
    head = (
        '"""Exceptions by reason. Written by stubs.py from evalfleet/errors/v1/error_reason.proto."""\n\n'
        "from evalfleet._error import EvalfleetError\n"
    )
    return f"{head}\n__all__ = [\n{names}]\n\n\n" + "\n\n".join(classes.values())


def main(proto: Path, sources: Path) -> None:
    """Replaces the generated folders of SOURCES."""
    files = sorted(str(path.relative_to(proto)) for path in proto.glob("evalfleet/**/*.proto"))
    files = [name for name in files if published(name)]
    well_known = Path(protoc.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as scratch:
        image, plain, out = Path(scratch, "image"), Path(scratch, "plain"), Path(scratch, "out")
        out.mkdir()
        includes = [f"-I{proto}", f"-I{proto / 'third_party'}", f"-I{well_known}"]
        run(*includes, "--include_imports", "--include_source_info", f"--descriptor_set_out={image}", *files)
        plain.write_bytes(without_options(FileDescriptorSet.FromString(image.read_bytes())).SerializeToString())
        binaries = Path(sys.executable).parent
        run(
            f"--descriptor_set_in={plain}",
            f"--plugin=protoc-gen-mypy={binaries / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={binaries / 'protoc-gen-mypy_grpc'}",
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            f"--mypy_out=quiet:{out}",
            f"--mypy_grpc_out=quiet:{out}",
            *files,
        )
        for path in out.rglob("*_pb2_grpc.py"):
            if "class " not in path.read_text():  # It has no service.
                path.unlink()
                path.with_suffix(".pyi").unlink()
        (sources / "evalfleet" / "_reasons.py").write_text(reasons(FileDescriptorSet.FromString(image.read_bytes())))
        for domain in sorted(folder.name for folder in (out / "evalfleet").iterdir()):
            target = sources / "evalfleet" / domain
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(out / "evalfleet" / domain, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
