#include "engine/chat_template/template.h"

#include "engine/chat_template/interpreter.h"
#include "engine/chat_template/parser.h"

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
