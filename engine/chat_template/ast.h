#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat_template/value.h"

namespace draftscope::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// A node of an expression tree; `kind` determines which fields are used.
struct Expression {
    enum class Kind {
        literal,    ///< value
        name,       ///< text
        list,       ///< parts: items (tuples too)
        dict,       ///< parts: key, value, key, value, ...
        unary,      ///< text: "-", "+", "not"; parts[0]
        binary,     ///< text: "+", "~", "and", "in", ...; parts[0], parts[1]
        choice,     ///< parts: then, condition, else (may be null)
        attribute,  ///< parts[0] . text
        subscript,  ///< parts[0] [ parts[1] ]
        slice,      ///< parts[0] [ parts[1] : parts[2] : parts[3] ], each may be null
        call,       ///< parts[0] ( parts[1...], names )
        filter,     ///< parts[0] | text ( parts[1...], names )
        test,       ///< parts[0] is text ( parts[1...], names )
    };
    Kind kind;
    int line = 0;
    int depth = 1;  ///< depth of this subtree
    std::string text;
    Value value;
    std::vector<ExpressionPtr> parts;
    std::vector<std::pair<std::string, ExpressionPtr>> names;
};

struct Statement;
using Block = std::vector<Statement>;

struct Statement {
    enum class Kind {
        text,       ///< text
        output,     ///< value
        condition,  ///< branches: value (null = else) and body
        loop,       ///< targets in value, where filter; body; otherwise
        set,        ///< targets (or targets[0] . text) = value
        set_block,  ///< targets[0] = body, through `value`'s filters
        filter,     ///< body, through `value`'s filters
        macro,      ///< text = name; targets = parameters, defaults; body
        plain,      ///< body, as it is ({% generation %})
        leave,      ///< break
        next,       ///< continue
    };
    Kind kind;
    int line = 0;
    std::string text;
    std::vector<std::string> targets;
    ExpressionPtr value;
    ExpressionPtr where;
    std::vector<ExpressionPtr> defaults;  ///< default values of a macro's parameters; null = none
    Block body;
    Block else_body;
    std::vector<std::pair<ExpressionPtr, Block>> branches;
};

}  // namespace draftscope::jinja
