#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/model/jinja/ast.h"

namespace draftscope::jinja {

/// A Jinja template as model files carry it (docs/decisions/ has what of the language is known). Immutable,
/// safe to share between threads.
class Template {
  public:
    /// An error says the line and what there is not known to this version.
    static Result<Template> parse(std::string_view source);
    /// What the template writes; an error says the line and what went wrong, or what the template itself
    /// raises.
    Result<std::string> render(const Dict& names) const;

  private:
    explicit Template(Block program) : program_(std::make_shared<const Block>(std::move(program))) {}
    std::shared_ptr<const Block> program_;
};

}  // namespace draftscope::jinja
