#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/chat_template/value.h"

namespace draftscope::jinja {

struct Statement;
using Block = std::vector<Statement>;

/// A Jinja template of a model file (docs/decisions/ lists the supported subset). Immutable, safe to share
/// between threads.
class Template {
  public:
    /// An error names the line and the unsupported construct.
    static Result<Template> parse(std::string_view source);
    /// Renders the template with variables, a mapping. An error names the line and the problem, or holds the
    /// template's own message. strftime_now is callable but not "defined", so that templates use their own
    /// fallback date.
    Result<std::string> render(const Value& names) const;

  private:
    explicit Template(Block program);
    std::shared_ptr<const Block> program_;
};

}  // namespace draftscope::jinja
