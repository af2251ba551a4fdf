#include "engine/model/jinja/template.h"

#include "engine/model/jinja/interpreter.h"
#include "engine/model/jinja/parser.h"

namespace draftscope::jinja {

Result<Template> Template::parse(std::string_view source) {
    try {
        return Template(jinja::parse(source));
    } catch (const Failure& failure) {
        return bad_input("{}", failure.message);
    }
}

Result<std::string> Template::render(const Dict& names) const {
    try {
        return interpret(*program_, names);
    } catch (const Failure& failure) {
        return bad_input("{}", failure.message);
    }
}

}  // namespace draftscope::jinja
