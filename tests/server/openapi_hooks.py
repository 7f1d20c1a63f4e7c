"""Rules of a request that JSON Schema cannot state, for openapi.sh: bodies that break one are not sent as valid ones."""
import schemathesis


def names_of_tools(body):
    for tool in body.get("tools") or []:
        if isinstance(tool, dict):
            yield (tool["function"] if isinstance(tool.get("function"), dict) else tool).get("name")


@schemathesis.hook
def filter_body(context, body):
    """Returns whether the names of the tools are distinct: the server rejects two tools of one name."""
    if not isinstance(body, dict) or not isinstance(body.get("tools"), list):
        return True
    names = [name for name in names_of_tools(body) if isinstance(name, str)]
    return len(names) == len(set(names))
