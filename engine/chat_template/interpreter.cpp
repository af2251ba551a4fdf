#include "engine/chat_template/interpreter.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "engine/chat_template/builtins.h"

namespace draftscope::jinja {
namespace {

using Kind = Expression::Kind;

// Limits that stop runaway templates; the tree is walked recursively.
constexpr std::int64_t max_steps = 1'000'000;
constexpr int max_walk_depth = 1000;

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

enum class Flow { on, leave, next };

class Interpreter {
  public:
    explicit Interpreter(const Dict& names) : globals_(std::make_shared<Scope>()) {
        for (const auto& [name, value] : names.entries) globals_->values[name.to_text()] = value;
    }

    std::string run(const Block& program) {
        std::string out;
        try {
            execute(program, std::make_shared<Scope>(Scope{{}, globals_}), out);
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
    void assign(const std::vector<std::string>& targets, const Value& value, const ScopePtr& scope);
    void set(const Statement& statement, const ScopePtr& scope);
    void macro(const Statement& statement, const ScopePtr& scope);
    Value filtered(const Statement& statement, std::string text, const ScopePtr& scope);

    Value evaluate(const Expression& expression, const ScopePtr& scope);
    Value evaluate_name(const std::string& name, const ScopePtr& scope) const;
    Value part(const Expression& expression, std::size_t i, const ScopePtr& scope) {
        const bool present = i < expression.parts.size() && expression.parts[i] != nullptr;
        return present ? evaluate(*expression.parts[i], scope) : Value();
    }
    Value binary(const Expression& expression, const ScopePtr& scope);
    Value call(const Expression& expression, const ScopePtr& scope);
    Arguments arguments(const Expression& expression, const ScopePtr& scope);

    ScopePtr globals_;
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
    switch (statement.kind) {
        case Statement::Kind::text:
            out += statement.text;
            break;
        case Statement::Kind::output:
            out += evaluate(*statement.value, scope).to_text();
            break;
        case Statement::Kind::condition:
            for (const auto& [when, body] : statement.branches) {
                if (when == nullptr || evaluate(*when, scope).truth()) return execute(body, scope, out);
            }
            break;
        case Statement::Kind::loop:
            return loop(statement, scope, out);
        case Statement::Kind::set:
            set(statement, scope);
            break;
        case Statement::Kind::set_block: {
            std::string text;
            execute(statement.body, std::make_shared<Scope>(Scope{{}, scope}), text);
            scope->values[statement.targets[0]] = filtered(statement, std::move(text), scope);
            break;
        }
        case Statement::Kind::filter: {
            std::string text;
            execute(statement.body, std::make_shared<Scope>(Scope{{}, scope}), text);
            out += filtered(statement, std::move(text), scope).to_text();
            break;
        }
        case Statement::Kind::macro:
            macro(statement, scope);
            break;
        case Statement::Kind::plain:
            return execute(statement.body, scope, out);
        case Statement::Kind::leave:
            return Flow::leave;
        case Statement::Kind::next:
            return Flow::next;
    }
    check_length(out.size());
    return Flow::on;
}

Value Interpreter::filtered(const Statement& statement, std::string text, const ScopePtr& scope) {
    if (statement.value == nullptr) return text;
    const auto inner = std::make_shared<Scope>(Scope{{}, scope});
    inner->values[""] = Value(std::move(text));
    return evaluate(*statement.value, inner);
}

void Interpreter::assign(const std::vector<std::string>& targets, const Value& value, const ScopePtr& scope) {
    if (targets.size() == 1) {
        scope->values[targets[0]] = value;
        return;
    }
    const List items = to_items(value);
    if (items.size() != targets.size())
        fail(where(), std::to_string(items.size()), " values are assigned to ",
             std::to_string(targets.size()), " names");
    for (std::size_t i = 0; i < items.size(); ++i) scope->values[targets[i]] = items[i];
}

void Interpreter::set(const Statement& statement, const ScopePtr& scope) {
    Value value = evaluate(*statement.value, scope);
    if (statement.text.empty()) return assign(statement.targets, value, scope);
    const Value* space = scope->find(statement.targets[0]);
    if (space == nullptr || !space->is_dict() || !space->dict().is_namespace)
        fail(where(), "'", statement.targets[0], "' is not a namespace");
    space->dict().set(statement.text, std::move(value));
}

Flow Interpreter::loop(const Statement& statement, const ScopePtr& scope, std::string& out) {
    List items = to_items(evaluate(*statement.value, scope));
    if (statement.where != nullptr) {
        List kept;
        for (Value& item : items) {
            const Step step(*this, statement.line);
            const auto inner = std::make_shared<Scope>(Scope{{}, scope});
            assign(statement.targets, item, inner);
            if (evaluate(*statement.where, inner).truth()) kept.push_back(std::move(item));
        }
        items = std::move(kept);
    }
    if (items.empty()) return execute(statement.else_body, std::make_shared<Scope>(Scope{{}, scope}), out);
    const auto count = static_cast<std::int64_t>(items.size());
    for (std::int64_t i = 0; i < count; ++i) {
        const Step step(*this, statement.line);
        const std::size_t at = i;
        const auto inner = std::make_shared<Scope>(Scope{{}, scope});
        Dict state;
        state.set("index", i + 1);
        state.set("index0", i);
        state.set("revindex", count - i);
        state.set("revindex0", count - i - 1);
        state.set("first", i == 0);
        state.set("last", i + 1 == count);
        state.set("length", count);
        if (i > 0) state.set("previtem", items[at - 1]);
        if (i + 1 < count) state.set("nextitem", items[at + 1]);
        state.set("cycle", Function([i](const Arguments& given) {
                      if (given.positional.empty()) fail("loop.cycle: no items given");
                      return given.positional[i % given.positional.size()];
                  }));
        inner->values["loop"] = Value(std::move(state));
        assign(statement.targets, items[at], inner);
        if (execute(statement.body, inner, out) == Flow::leave) break;
    }
    return Flow::on;
}

void Interpreter::macro(const Statement& statement, const ScopePtr& scope) {
    // The scope owns the function; a strong reference back would leak both.
    const std::weak_ptr<Scope> outside = scope;
    scope->values[statement.text] = Function([this, &statement, outside](const Arguments& given) {
        const auto inner = std::make_shared<Scope>(Scope{{}, outside.lock()});
        for (std::size_t i = 0; i < statement.targets.size(); ++i) {
            const std::string& name = statement.targets[i];
            Value value = given.get(i, name);
            if (value.is_undefined())
                value =
                    statement.defaults[i] ? evaluate(*statement.defaults[i], inner) : Value(Undefined{name});
            inner->values[name] = std::move(value);
        }
        if (given.positional.size() > statement.targets.size())
            fail(where(), "macro '", statement.text, "' has too many arguments");
        std::string out;
        execute(statement.body, inner, out);
        return Value(std::move(out));
    });
}

Value Interpreter::evaluate_name(const std::string& name, const ScopePtr& scope) const {
    const Value* found = scope->find(name);
    if (found != nullptr) return *found;
    Value function = name == "strftime_now" ? Value() : find_function(name);
    return function.is_undefined() ? Value(Undefined{name}) : function;
}

Value Interpreter::evaluate(const Expression& expression, const ScopePtr& scope) {
    const Step step(*this, expression.line);
    switch (expression.kind) {
        case Kind::literal:
            return expression.value;
        case Kind::name:
            return evaluate_name(expression.text, scope);
        case Kind::list: {
            List out;
            for (const ExpressionPtr& item : expression.parts) out.push_back(evaluate(*item, scope));
            return out;
        }
        case Kind::dict: {
            Dict out;
            for (std::size_t i = 0; i + 1 < expression.parts.size(); i += 2)
                out.set(part(expression, i, scope), part(expression, i + 1, scope));
            return out;
        }
        case Kind::unary: {
            const Value operand = part(expression, 0, scope);
            if (expression.text == "not") return !operand.truth();
            const bool minus = expression.text == "-";
            if (operand.is_float()) return minus ? -operand.number() : operand.number();
            const std::int64_t value = operand.integer("the operand");
            return minus ? Value(std::int64_t{0} - value) : Value(value);
        }
        case Kind::binary:
            return binary(expression, scope);
        case Kind::choice:
            return part(expression, part(expression, 1, scope).truth() ? 0 : 2, scope);
        case Kind::attribute:
            return get_attribute(part(expression, 0, scope), expression.text);
        case Kind::subscript: {
            const Value subject = part(expression, 0, scope), key = part(expression, 1, scope);
            Value found = get_item(subject, key);
            if (!found.is_undefined() || !key.is_text()) return found;
            return get_attribute(subject, key.text());
        }
        case Kind::slice:
            return get_slice(part(expression, 0, scope), part(expression, 1, scope),
                             part(expression, 2, scope), part(expression, 3, scope));
        case Kind::call:
            return call(expression, scope);
        case Kind::filter:
            return apply_filter(expression.text, part(expression, 0, scope), arguments(expression, scope));
        case Kind::test:
            return apply_test(expression.text, part(expression, 0, scope), arguments(expression, scope));
    }
    return {};
}

Arguments Interpreter::arguments(const Expression& expression, const ScopePtr& scope) {
    Arguments out;
    for (std::size_t i = 1; i < expression.parts.size(); ++i)
        out.positional.push_back(part(expression, i, scope));
    for (const auto& [name, value] : expression.names) out.names.emplace_back(name, evaluate(*value, scope));
    return out;
}

Value Interpreter::call(const Expression& expression, const ScopePtr& scope) {
    const Expression& callee = *expression.parts[0];
    Value function = evaluate(callee, scope);
    if (function.is_undefined() && callee.kind == Kind::name) function = find_function(callee.text);
    line_ = expression.line;
    if (!function.is_function()) {
        const bool named = callee.kind == Kind::name || callee.kind == Kind::attribute;
        fail("'", named ? callee.text : std::string(function.type()),
             "' is not a function supported by this version");
    }
    return function.function()(arguments(expression, scope));
}

std::int64_t checked(std::int64_t a, std::int64_t b, char op) {
    std::int64_t out = 0;
    const bool over = op == '+'   ? __builtin_add_overflow(a, b, &out)
                      : op == '-' ? __builtin_sub_overflow(a, b, &out)
                                  : __builtin_mul_overflow(a, b, &out);
    if (over) fail("a number is out of range");
    return out;
}

/// Python's // and %, which round towards minus infinity.
Value divided(const Value& a, const Value& b, bool remainder) {
    if (b.number() == 0) fail("division by zero");
    if (a.is_float() || b.is_float()) {
        const double whole = std::floor(a.number() / b.number());
        return remainder ? a.number() - whole * b.number() : whole;
    }
    const std::int64_t left = a.integer("the operand"), right = b.integer("the operand");
    if (right == -1) return remainder ? Value(std::int64_t{0}) : Value(checked(0, left, '-'));
    std::int64_t quotient = left / right, rest = left % right;
    if (rest != 0 && (rest < 0) != (right < 0)) {
        --quotient;
        rest += right;
    }
    return remainder ? rest : quotient;
}

Value arithmetic(const std::string& op, const Value& a, const Value& b) {
    if (op == "+" && a.is_text() && b.is_text()) {
        check_length(a.text().size() + b.text().size());
        return a.text() + b.text();
    }
    if (op == "+" && a.is_list() && b.is_list()) {
        List out = a.list();
        check_length((out.size() + b.list().size()) * sizeof(Value));
        out.insert(out.end(), b.list().begin(), b.list().end());
        return out;
    }
    if (op == "*" && a.is_text() && b.is_int()) {
        std::string out;
        check_length(a.text().size() * (std::clamp<std::int64_t>(b.integer("the operand"), 0, 1 << 26)));
        for (std::int64_t i = 0; i < b.integer("the operand") && !a.text().empty(); ++i) out += a.text();
        return out;
    }
    if (!a.is_number() || !b.is_number()) {
        const std::string_view name = a.is_undefined()   ? std::string_view(a.undefined_name())
                                      : b.is_undefined() ? std::string_view(b.undefined_name())
                                                         : "";
        if (!name.empty()) fail("'", name, "' is undefined");
        fail(a.type(), " ", op, " ", b.type(), " cannot be computed");
    }
    if (op == "/") {
        if (b.number() == 0) fail("division by zero");
        return a.number() / b.number();
    }
    if (op == "//" || op == "%") return divided(a, b, op == "%");
    if (op == "**") {
        const double out = std::pow(a.number(), b.number());
        const bool whole = !a.is_float() && !b.is_float() && std::abs(out) < 9e15 && b.number() >= 0;
        return whole ? Value(static_cast<std::int64_t>(out)) : Value(out);
    }
    if (!a.is_float() && !b.is_float())
        return checked(a.integer("the operand"), b.integer("the operand"), op[0]);
    const double x = a.number(), y = b.number();
    return op == "+" ? x + y : op == "-" ? x - y : x * y;
}

Value Interpreter::binary(const Expression& expression, const ScopePtr& scope) {
    const std::string& op = expression.text;
    Value left = part(expression, 0, scope);
    if (op == "and") return left.truth() ? part(expression, 1, scope) : left;
    if (op == "or") return left.truth() ? left : part(expression, 1, scope);
    const Value right = part(expression, 1, scope);
    line_ = expression.line;
    if (op == "==") return equal(left, right);
    if (op == "!=") return !equal(left, right);
    if (op == "<") return less(left, right);
    if (op == ">") return less(right, left);
    if (op == "<=") return !less(right, left);
    if (op == ">=") return !less(left, right);
    if (op == "in") return contains(right, left);
    if (op == "not in") return !contains(right, left);
    if (op == "~") {
        std::string out = left.to_text() + right.to_text();
        check_length(out.size());
        return out;
    }
    return arithmetic(op, left, right);
}

}  // namespace

std::string interpret(const Block& program, const Dict& names) {
    return Interpreter(names).run(program);
}

}  // namespace draftscope::jinja
