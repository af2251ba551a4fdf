#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/chat_template/ast.h"

namespace draftscope::jinja {

/// A Jinja template of a model file (docs/decisions/ lists the supported subset). Immutable, safe to share
/// between threads.
class Template {
  public:
    /// An error names the line and the unsupported construct.
    static Result<Template> parse(std::string_view source);
    /// Renders the template. An error names the line and the problem, or holds the template's own message.
    Result<std::string> render(const Dict& names) const;

  private:
    explicit Template(Block program) : program_(std::make_shared<const Block>(std::move(program))) {}
    std::shared_ptr<const Block> program_;
};

}  // namespace draftscope::jinja
