#include <unordered_map>

#include "engine/chat_template/template.h"

namespace draftscope::jinja {
namespace {

using Kind = Expression::Kind;

// Limits that stop runaway templates; the tree is walked recursively.
constexpr std::int64_t max_steps = 1'000'000;
constexpr int max_walk_depth = 1000;
constexpr std::int64_t values_per_step = 128;  // values that are copied

struct Scope {
    std::unordered_map<std::string, Value> values;
    std::shared_ptr<Scope> outer;

    const Value* find(const std::string& name) const {
        for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get()) {
            const auto found = scope->values.find(name);
            if (found != scope->values.end()) return &found->second;
        }
        return nullptr;
    }
};
using ScopePtr = std::shared_ptr<Scope>;

ScopePtr nested(const ScopePtr& outer) {
    return std::make_shared<Scope>(Scope{{}, outer});
}

enum class Flow { on, leave, next };

class Interpreter {
  public:
    explicit Interpreter(const Value& names) : globals_(std::make_shared<Scope>()) {
        for (const auto& [name, value] : names.items()) globals_->values[name] = value;
    }
    ~Interpreter() {
        for (const auto& space : assigned_) space->fields = {};
    }

    std::string run(const Block& program) {
        std::string out;
        try {
            execute(program, nested(globals_), out);
        } catch (Failure& failure) {
            if (!failure.message.starts_with("line ")) failure.message.insert(0, where());
            throw;
        }
        return out;
    }

  private:
    class Step {
      public:
        Step(Interpreter& interpreter, int line) : interpreter_(interpreter) {
            interpreter_.line_ = line;
            if (++interpreter_.steps_ > max_steps)
                fail(interpreter_.where(), "the template runs for too long");
            if (++interpreter_.depth_ > max_walk_depth) fail(interpreter_.where(), "nested too deeply");
        }
        ~Step() { --interpreter_.depth_; }

      private:
        Interpreter& interpreter_;
    };

    std::string where() const { return "line " + std::to_string(line_) + ": "; }

    Flow execute(const Block& block, const ScopePtr& scope, std::string& out);
    Flow execute_one(const Statement& statement, const ScopePtr& scope, std::string& out);
    Flow loop(const Statement& statement, const ScopePtr& scope, std::string& out);
    void assign(const std::vector<std::string>& targets, Value value, const ScopePtr& scope);
    void set(const Statement& statement, const ScopePtr& scope);
    void macro(const Statement& statement, const ScopePtr& scope);

    Value evaluate(const ExpressionPtr& expression, const ScopePtr& scope);
    Value compute(const Expression& expression, const ScopePtr& scope);
    const Value& look(const ExpressionPtr& expression, const ScopePtr& scope, Value& held);
    /// Looks at the subject of a call or builtin. It is copied if there are arguments, which may call macros.
    const Value& subject(const ExpressionPtr& expression, const Expression& call, const ScopePtr& scope,
                         Value& held) {
        if (call.parts.size() == 1 && call.names.empty()) return look(expression, scope, held);
        return held = evaluate(expression, scope);
    }
    bool holds(const ExpressionPtr& expression, const ScopePtr& scope) {
        Value held;
        return truth(look(expression, scope, held));
    }
    Value call(const Expression& expression, const ScopePtr& scope);
    Arguments arguments(const Expression& expression, const ScopePtr& scope);

    ScopePtr globals_;
    std::vector<std::shared_ptr<Handle>> assigned_;  ///< namespaces that may hold themselves
    int line_ = 1;
    int depth_ = 0;
    std::int64_t steps_ = 0;
};

Flow Interpreter::execute(const Block& block, const ScopePtr& scope, std::string& out) {
    for (const Statement& statement : block) {
        const Flow flow = execute_one(statement, scope, out);
        if (flow != Flow::on) return flow;
    }
    return Flow::on;
}

Flow Interpreter::execute_one(const Statement& statement, const ScopePtr& scope, std::string& out) {
    const Step step(*this, statement.line);
    Value held;
    switch (statement.kind) {
        case Statement::Kind::output:
            out += to_text(look(statement.value, scope, held));
            break;
        case Statement::Kind::condition:
            return execute(holds(statement.value, scope) ? statement.body : statement.else_body, scope, out);
        case Statement::Kind::loop:
            return loop(statement, scope, out);
        case Statement::Kind::set:
            set(statement, scope);
            break;
        case Statement::Kind::capture: {
            const ScopePtr inner = nested(scope);
            std::string text;
            execute(statement.body, inner, text);
            inner->values[""] = std::move(text);
            Value filtered = evaluate(statement.value, inner);
            if (statement.targets.empty())
                out += to_text(filtered);
            else
                scope->values[statement.targets[0]] = std::move(filtered);
            break;
        }
        case Statement::Kind::macro:
            macro(statement, scope);
            break;
        case Statement::Kind::leave:
            return Flow::leave;
        case Statement::Kind::next:
            return Flow::next;
    }
    check_length(out.size());
    return Flow::on;
}

void Interpreter::assign(const std::vector<std::string>& targets, Value value, const ScopePtr& scope) {
    if (targets.size() == 1) {
        scope->values[targets[0]] = std::move(value);
        return;
    }
    const List items = to_items(value);
    if (items.size() != targets.size())
        fail(where(), std::to_string(items.size()), " values are assigned to ",
             std::to_string(targets.size()), " names");
    for (std::size_t i = 0; i < items.size(); ++i) scope->values[targets[i]] = items[i];
}

void Interpreter::set(const Statement& statement, const ScopePtr& scope) {
    Value value = evaluate(statement.value, scope);
    if (statement.text.empty()) return assign(statement.targets, std::move(value), scope);
    const Value* const target = scope->find(statement.targets[0]);
    const auto space = target != nullptr ? namespace_of(*target) : nullptr;
    if (space == nullptr) fail(where(), "'", statement.targets[0], "' is not a namespace");
    if (value.is_structured() || value.is_binary()) assigned_.push_back(space);
    space->fields[statement.text] = std::move(value);
}

Flow Interpreter::loop(const Statement& statement, const ScopePtr& scope, std::string& out) {
    Value held;
    List items = to_items(look(statement.value, scope, held));
    if (statement.where != nullptr) {
        std::erase_if(items, [&](const Value& item) {
            const Step step(*this, statement.line);
            const auto inner = nested(scope);
            assign(statement.targets, item, inner);
            return !holds(statement.where, inner);
        });
    }
    if (items.empty()) return execute(statement.else_body, nested(scope), out);
    const auto with_state = nested(scope);
    Value& state = with_state->values["loop"];
    const std::size_t count = items.size();
    for (std::size_t i = 0; i < count; ++i) {
        const Step step(*this, statement.line);
        const auto inner = nested(with_state);
        state["index"] = i + 1;
        state["index0"] = i;
        state["revindex"] = count - i;
        state["revindex0"] = count - i - 1;
        state["first"] = i == 0;
        state["last"] = i + 1 == count;
        state["length"] = count;
        state["previtem"] = i > 0 ? items[i - 1] : undefined;
        state["nextitem"] = i + 1 < count ? items[i + 1] : undefined;
        state["cycle"] = make_function([i](const Arguments& given) {
            if (given.positional.empty()) fail("loop.cycle: no items given");
            return given.positional[i % given.positional.size()];
        });
        assign(statement.targets, items[i], inner);
        if (execute(statement.body, inner, out) == Flow::leave) break;
    }
    return Flow::on;
}

void Interpreter::macro(const Statement& statement, const ScopePtr& scope) {
    // The scope owns the function; a strong reference back would leak both.
    const std::weak_ptr<Scope> outside = scope;
    scope->values[statement.text] = make_function([this, &statement, outside](const Arguments& given) {
        const auto inner = nested(outside.lock());
        for (std::size_t i = 0; i < statement.targets.size(); ++i) {
            const std::string& name = statement.targets[i];
            Value value = given.get(i, name);
            if (is_undefined(value)) value = evaluate(statement.defaults[i], inner);
            inner->values[name] = std::move(value);
        }
        if (given.positional.size() > statement.targets.size())
            fail(where(), "macro '", statement.text, "' has too many arguments");
        std::string out;
        execute(statement.body, inner, out);
        return Value(std::move(out));
    });
}

/// Throws a Failure that names the value if it is undefined; `field` is what is wanted of it.
void require(const Value& value, const Expression& expression, const Value& field = {}) {
    if (!is_undefined(value)) return;
    const bool by_key = expression.kind == Kind::subscript && expression.parts[1]->kind == Kind::literal;
    const std::string name = by_key ? to_text(expression.parts[1]->value) : expression.text;
    fail("'", name, "' is undefined", field.is_null() ? "" : ", so it has no '" + to_text(field) + "'");
}

Value make_bound(Builtin builtin, const Value& subject) {
    return make_function([builtin, subject](const Arguments& given) { return builtin(subject, given); });
}

/// Evaluates an expression, without a copy where it is a literal, a variable or a part of one. The reference
/// is to `held` otherwise, and lasts until the next statement or call of a macro.
const Value& Interpreter::look(const ExpressionPtr& expression, const ScopePtr& scope, Value& held) {
    if (expression == nullptr) return undefined;
    const auto& [kind, line, depth, text, value, find, parts, names] = *expression;
    if (kind == Kind::literal) return value;
    const Step step(*this, line);
    if (kind == Kind::name) {
        if (const Value* const found = scope->find(text)) return *found;
        const Builtin function = text == "strftime_now" ? nullptr : find_function(text);
        return held = function != nullptr ? make_bound(function, undefined) : undefined;
    }
    if (kind != Kind::attribute && kind != Kind::subscript) {
        held = compute(*expression, scope);
        steps_ += copy_cost(held) / values_per_step;
        return held;
    }
    const bool by_key = kind == Kind::subscript;
    const Value key = by_key ? evaluate(parts[1], scope) : Value(text);
    const Value& subject = look(parts[0], scope, held);
    line_ = line;
    require(subject, *parts[0], key);
    const Builtin method = key.is_string() ? find_method(subject.type(), as_text(key)) : nullptr;
    if (method != nullptr && !(by_key && subject.is_object() && subject.contains(as_text(key))))
        return held = make_bound(method, subject);
    return get_item(subject, key, held);
}

Value Interpreter::evaluate(const ExpressionPtr& expression, const ScopePtr& scope) {
    Value held;
    const Value& found = look(expression, scope, held);
    if (&found == &held) return held;
    steps_ += copy_cost(found) / values_per_step;
    return found;
}

Value Interpreter::compute(const Expression& expression, const ScopePtr& scope) {
    const auto& parts = expression.parts;
    Value held;
    switch (expression.kind) {
        case Kind::list: {
            List out;
            for (const ExpressionPtr& item : parts) out.push_back(evaluate(item, scope));
            return out;
        }
        case Kind::dict: {
            Value out = Value::object();
            for (std::size_t i = 0; i + 1 < parts.size(); i += 2) {
                const std::string key = to_key(evaluate(parts[i], scope));
                out[key] = evaluate(parts[i + 1], scope);
            }
            return out;
        }
        case Kind::logic: {
            const Value& left = look(parts[0], scope, held);
            return truth(left) == (expression.text == "or") ? left : evaluate(parts[1], scope);
        }
        case Kind::choice:
            return evaluate(parts[holds(parts[1], scope) ? 0 : 2], scope);
        case Kind::call:
            return call(expression, scope);
        default:
            break;
    }
    const Value& value = subject(parts[0], expression, scope, held);
    const Arguments given = arguments(expression, scope);
    line_ = expression.line;
    if (expression.find == find_operator && expression.text.find_first_of("+-*/%") != std::string::npos) {
        require(value, *parts[0]);
        require(given.positional[0], *parts[1]);
    }
    return expression.find(expression.text)(value, given);
}

Arguments Interpreter::arguments(const Expression& expression, const ScopePtr& scope) {
    Arguments out;
    for (std::size_t i = 1; i < expression.parts.size(); ++i)
        out.positional.push_back(evaluate(expression.parts[i], scope));
    for (const auto& [name, value] : expression.names) out.names.emplace_back(name, evaluate(value, scope));
    return out;
}

Value Interpreter::call(const Expression& expression, const ScopePtr& scope) {
    const Expression& callee = *expression.parts[0];
    const bool is_method = callee.kind == Kind::attribute;
    Value held, field;
    const Value& owner = is_method ? subject(callee.parts[0], expression, scope, held) : undefined;
    Builtin builtin = nullptr;
    std::shared_ptr<Handle> function;
    line_ = callee.line;
    if (is_method) {
        require(owner, *callee.parts[0], callee.text);
        builtin = find_method(owner.type(), callee.text);
        if (builtin == nullptr) function = function_of(get_field(owner, callee.text, field));
    } else if (callee.kind == Kind::name && scope->find(callee.text) == nullptr) {
        builtin = find_function(callee.text);
    } else {
        function = function_of(look(expression.parts[0], scope, field));
    }
    const Arguments given = arguments(expression, scope);
    line_ = expression.line;
    if (builtin != nullptr) return builtin(owner, given);
    if (function != nullptr) return function->call(given);
    const bool named = is_method || callee.kind == Kind::name;
    fail("'", named ? callee.text : "the value", "' is not a function supported by this version");
}

}  // namespace

Result<std::string> Template::render(const Value& names) const {
    try {
        return Interpreter(names).run(*program_);
    } catch (const Failure& failure) {
        return bad_input("{}", failure.message);
    }
}

}  // namespace draftscope::jinja
