#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/chat_template/value.h"

/// A Jinja template, from its tokens to the tree that is rendered.
namespace draftscope::jinja {

struct Token {
    enum class Kind {
        data,  ///< text between tags, after whitespace control
        output_begin,
        output_end,
        block_begin,
        block_end,
        name,
        text,  ///< a string literal, escapes resolved
        integer,
        floating,
        symbol,
        end,
    };
    Kind kind;
    std::string text;
    int line = 1;
};

/// Splits a template into tokens with trim_blocks and lstrip_blocks on, as in Hugging Face's libraries.
/// Throws a Failure on invalid input.
std::vector<Token> tokenise(std::string_view source);

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// A node of an expression tree; `kind` determines which fields are used.
struct Expression {
    enum class Kind {
        literal,    ///< value
        name,       ///< text
        list,       ///< parts: items (tuples too)
        dict,       ///< parts: key, value, key, value, ...
        logic,      ///< text: "and" or "or"; parts[0], parts[1]
        choice,     ///< parts: then, condition, else (may be null)
        attribute,  ///< parts[0] . text
        subscript,  ///< parts[0] [ parts[1] ]
        call,       ///< parts[0] ( parts[1...], names )
        builtin,    ///< a filter, test or operator, find(text): parts[0] ( parts[1...], names )
    };
    Kind kind;
    int line = 0;
    int depth = 1;  ///< depth of this subtree
    std::string text = {};
    Value value = {};
    Builtin (*find)(std::string_view) = nullptr;
    std::vector<ExpressionPtr> parts = {};
    std::vector<std::pair<std::string, ExpressionPtr>> names = {};
};

struct Statement;
using Block = std::vector<Statement>;

struct Statement {
    enum class Kind {
        output,     ///< value
        condition,  ///< body if value, else else_body
        loop,       ///< targets in value, where filter; body; otherwise else_body
        set,        ///< targets (or targets[0] . text) = value
        capture,    ///< body through the filters of `value`, to targets[0] or, without any, to the output
        macro,      ///< text = name; targets = parameters, defaults; body
        leave,      ///< break
        next,       ///< continue
    };
    Kind kind;
    int line = 0;
    ExpressionPtr value = {};
    std::string text = {};
    std::vector<std::string> targets = {};
    ExpressionPtr where = {};
    std::vector<ExpressionPtr> defaults = {};  ///< default values of a macro's parameters; null = none
    Block body = {};
    Block else_body = {};
};

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
