#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <unordered_map>

#include "engine/chat_template/template.h"

namespace draftscope::jinja {
namespace {

using Kind = Expression::Kind;

// Deeper trees would exhaust the stack of a recursive walk; no real template reaches these limits.
constexpr int max_expression_depth = 200;
constexpr int max_nesting = 100;

class Parser {
  public:
    explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

    Block run() {
        Block out = block({});
        if (current().kind != Token::Kind::end) wrong("expected the end of the template");
        return out;
    }

  private:
    class Nested {
      public:
        explicit Nested(Parser& parser) : parser_(parser) {
            if (++parser_.nesting_ > max_nesting) parser_.wrong("nested too deeply");
        }
        ~Nested() { --parser_.nesting_; }

      private:
        Parser& parser_;
    };

    const Token& current() const { return tokens_[at_]; }
    const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    Token next_token() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
    bool is_symbol(std::string_view text) const {
        return current().kind == Token::Kind::symbol && current().text == text;
    }
    bool is_name(std::string_view text) const {
        return current().kind == Token::Kind::name && current().text == text;
    }
    bool skip_symbol(std::string_view text) { return is_symbol(text) && (next_token(), true); }
    bool skip_name(std::string_view text) { return is_name(text) && (next_token(), true); }
    void need_symbol(std::string_view text) {
        if (!skip_symbol(text)) wrong("expected '" + std::string(text) + "'");
    }
    std::string need_name() {
        if (current().kind != Token::Kind::name) wrong("expected a name");
        return next_token().text;
    }
    void need(Token::Kind kind) {
        if (current().kind != kind) wrong("the tag does not end where expected");
        next_token();
    }
    [[noreturn]] void wrong(std::string_view why) const {
        const std::string found = current().kind == Token::Kind::symbol || current().kind == Token::Kind::name
                                      ? " at '" + current().text + "'"
                                      : "";
        fail("line ", std::to_string(current().line), ": ", why, found);
    }

    ExpressionPtr make(Kind kind, std::string text = {}) const {
        return std::make_unique<Expression>(Expression{kind, current().line, 1, std::move(text)});
    }
    ExpressionPtr literal(Value value) const {
        ExpressionPtr out = make(Kind::literal);
        out->value = std::move(value);
        return out;
    }
    ExpressionPtr builtin(Builtin (*find)(std::string_view), std::string name, ExpressionPtr subject) const {
        ExpressionPtr out = make(Kind::builtin, std::move(name));
        out->find = find;
        add(out, std::move(subject));
        return out;
    }
    void add(ExpressionPtr& to, ExpressionPtr part) const {
        if (part) to->depth = std::max(to->depth, part->depth + 1);
        if (to->depth > max_expression_depth) wrong("an expression is too long");
        to->parts.push_back(std::move(part));
    }

    // Expressions, in the order of Jinja's precedences.
    ExpressionPtr expression(bool with_choice = true);
    ExpressionPtr tuple(bool with_choice = true);
    ExpressionPtr binary(std::size_t level = 0);
    ExpressionPtr signed_value(bool with_filters);
    ExpressionPtr primary();
    ExpressionPtr items(Kind kind, std::string_view end);
    ExpressionPtr postfix(ExpressionPtr subject);
    ExpressionPtr subscript(ExpressionPtr subject);
    ExpressionPtr filters(ExpressionPtr subject);
    ExpressionPtr tested(ExpressionPtr subject);
    void arguments(ExpressionPtr& call);

    // Statements.
    Block block(std::initializer_list<std::string_view> ends);
    Block body(std::string_view end) {
        Block out = block({end});
        end_block(end);
        return out;
    }
    Statement statement();
    Statement loop();
    Statement condition();
    Statement assignment();
    Statement macro();
    ExpressionPtr filter_chain(bool given);
    void end_tag() { need(Token::Kind::block_end); }
    void end_block(std::string_view name) {
        if (!skip_name(name)) wrong("expected {% " + std::string(name) + " %}");
        end_tag();
    }

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    int nesting_ = 0;
    int loops_ = 0;
};

ExpressionPtr Parser::expression(bool with_choice) {
    const Nested nested(*this);
    ExpressionPtr out = binary();
    while (with_choice && is_name("if")) {
        ExpressionPtr choice = make(Kind::choice);
        next_token();
        add(choice, std::move(out));
        add(choice, binary());
        add(choice, skip_name("else") ? expression() : nullptr);
        out = std::move(choice);
    }
    return out;
}

/// Parses one expression, or several separated by commas, which form a list.
ExpressionPtr Parser::tuple(bool with_choice) {
    ExpressionPtr first = expression(with_choice);
    if (!is_symbol(",")) return first;
    ExpressionPtr out = make(Kind::list);
    add(out, std::move(first));
    while (skip_symbol(",")) {
        if (current().kind == Token::Kind::block_end || current().kind == Token::Kind::output_end ||
            is_symbol(")"))
            break;
        add(out, expression(with_choice));
    }
    return out;
}

/// Binary operators by increasing precedence. `a < b < c` means `a < b and b < c` in Python; templates use
/// pairs only, and longer chains are errors.
ExpressionPtr Parser::binary(std::size_t level) {
    static const std::vector<std::vector<std::string_view>> operators = {
        {"or"},
        {"and"},
        {"not"},
        {"==", "!=", "<=", ">=", "<", ">", "in", "not in"},
        {"+", "-"},
        {"~"},
        {"*", "//", "/", "%"},
        {"**"}};
    constexpr std::size_t negation = 2, comparison = 3;
    if (level == operators.size()) return signed_value(true);
    if (level == negation && is_name("not")) {
        const Nested nested(*this);
        next_token();
        return builtin(find_operator, "not", binary(level));
    }
    ExpressionPtr left = binary(level + 1);
    for (int count = 1; level != negation; ++count) {
        const bool word = current().kind == Token::Kind::name;
        const bool inverted = is_name("not") && after().kind == Token::Kind::name && after().text == "in";
        const std::string op = inverted ? "not in" : current().text;
        const auto& known = operators[level];
        if ((!word && current().kind != Token::Kind::symbol) ||
            std::find(known.begin(), known.end(), op) == known.end())
            break;
        if (level == comparison && count > 1) wrong("chained comparisons are not supported by this version");
        if (inverted) next_token();
        next_token();
        left = builtin(find_operator, op, std::move(left));
        if (level < negation) left->kind = Kind::logic;
        add(left, binary(level + 1));
    }
    return left;
}

ExpressionPtr Parser::signed_value(bool with_filters) {
    const Nested nested(*this);
    ExpressionPtr out;
    if (is_symbol("-") || is_symbol("+")) {
        out = builtin(find_operator, next_token().text, literal(0));
        add(out, signed_value(false));
    } else {
        out = postfix(primary());
    }
    return with_filters ? filters(std::move(out)) : std::move(out);
}

ExpressionPtr Parser::primary() {
    static const std::unordered_map<std::string_view, Value> constants = {
        {"true", true},   {"True", true},    {"false", false},
        {"False", false}, {"none", nullptr}, {"None", nullptr}};
    if (skip_symbol("(")) {
        if (skip_symbol(")")) return make(Kind::list);
        ExpressionPtr inner = tuple();
        need_symbol(")");
        return inner;
    }
    if (skip_symbol("[")) return items(Kind::list, "]");
    if (skip_symbol("{")) return items(Kind::dict, "}");
    const Token token = current();
    if (token.kind == Token::Kind::text) {
        std::string text;
        while (current().kind == Token::Kind::text) text += next_token().text;
        return literal(std::move(text));
    }
    if (token.kind == Token::Kind::name) {
        next_token();
        const auto found = constants.find(token.text);
        return found != constants.end() ? literal(found->second) : make(Kind::name, token.text);
    }
    const bool is_integer = token.kind == Token::Kind::integer;
    if (!is_integer && token.kind != Token::Kind::floating) wrong("expected a value");
    std::int64_t integer = 0;
    double number = 0;
    const char *const begin = token.text.data(), *const end = begin + token.text.size();
    const auto read = is_integer ? std::from_chars(begin, end, integer) : std::from_chars(begin, end, number);
    if (read.ec != std::errc()) wrong("a number is out of range");
    next_token();
    return literal(is_integer ? Value(integer) : Value(number));
}

/// Parses the rest of a list or mapping.
ExpressionPtr Parser::items(Kind kind, std::string_view end) {
    ExpressionPtr out = make(kind);
    while (!skip_symbol(end)) {
        add(out, expression());
        if (kind == Kind::dict) {
            need_symbol(":");
            add(out, expression());
        }
        if (!is_symbol(end)) need_symbol(",");
    }
    return out;
}

ExpressionPtr Parser::postfix(ExpressionPtr subject) {
    while (true) {
        ExpressionPtr out;
        if (skip_symbol(".")) {
            const bool index = current().kind == Token::Kind::integer;
            out = make(index ? Kind::subscript : Kind::attribute, index ? "" : need_name());
            add(out, std::move(subject));
            if (index) add(out, primary());
        } else if (skip_symbol("[")) {
            out = subscript(std::move(subject));
        } else if (is_symbol("(")) {
            out = make(Kind::call);
            add(out, std::move(subject));
            arguments(out);
        } else {
            return subject;
        }
        subject = std::move(out);
    }
}

/// Parses the rest of `subject[index]` or `subject[from:to:step]`, whose bounds may be absent.
ExpressionPtr Parser::subscript(ExpressionPtr subject) {
    ExpressionPtr bounds[3];
    std::size_t given = 0;
    while (!skip_symbol("]")) {
        if (skip_symbol(":")) {
            if (++given > 2) wrong("a slice has too many parts");
        } else {
            if (bounds[given] != nullptr) wrong("expected ']'");
            bounds[given] = expression();
        }
    }
    if (given == 0 && bounds[0] == nullptr) wrong("expected an index");
    ExpressionPtr out = given > 0 ? builtin(find_operator, "[:]", std::move(subject)) : make(Kind::subscript);
    if (given == 0) add(out, std::move(subject));
    for (std::size_t i = 0; i < (given > 0 ? 3 : 1); ++i) add(out, std::move(bounds[i]));
    return out;
}

/// Parses `(a, b, name=c)` and appends it to the existing parts.
void Parser::arguments(ExpressionPtr& call) {
    need_symbol("(");
    while (!skip_symbol(")")) {
        if (is_symbol("*")) wrong("'*' in arguments is not supported by this version");
        if (current().kind == Token::Kind::name && after().kind == Token::Kind::symbol &&
            after().text == "=") {
            std::string name = need_name();
            need_symbol("=");
            ExpressionPtr value = expression();
            call->depth = std::max(call->depth, value->depth + 1);
            call->names.emplace_back(std::move(name), std::move(value));
        } else {
            add(call, expression());
        }
        if (!is_symbol(")")) need_symbol(",");
    }
}

ExpressionPtr Parser::filters(ExpressionPtr subject) {
    while (true) {
        if (skip_symbol("|")) {
            subject = builtin(find_filter, need_name(), std::move(subject));
            if (is_symbol("(")) arguments(subject);
        } else if (skip_name("is")) {
            subject = tested(std::move(subject));
        } else {
            return subject;
        }
    }
}

ExpressionPtr Parser::tested(ExpressionPtr subject) {
    const bool inverted = skip_name("not");
    ExpressionPtr out = builtin(find_test, skip_symbol("==") ? "==" : need_name(), std::move(subject));
    const Token::Kind kind = current().kind;
    const bool word = kind == Token::Kind::name && !is_name("else") && !is_name("or") && !is_name("and") &&
                      !is_name("if") && !is_name("is") && !is_name("not");
    if (is_symbol("(")) {
        arguments(out);
    } else if (word || kind == Token::Kind::text || kind == Token::Kind::integer ||
               kind == Token::Kind::floating || is_symbol("[") || is_symbol("{")) {
        add(out, postfix(primary()));
    }
    return inverted ? builtin(find_operator, "not", std::move(out)) : std::move(out);
}

/// Parses statements up to a tag in `ends`, whose name is the next token.
Block Parser::block(std::initializer_list<std::string_view> ends) {
    const Nested nested(*this);
    Block out;
    while (current().kind != Token::Kind::end) {
        const int line = current().line;
        if (current().kind == Token::Kind::data) {
            out.push_back({Statement::Kind::output, line, literal(next_token().text)});
        } else if (current().kind == Token::Kind::output_begin) {
            next_token();
            out.push_back({Statement::Kind::output, line, tuple()});
            need(Token::Kind::output_end);
        } else {
            const bool ended = std::count(ends.begin(), ends.end(), after().text) != 0;
            need(Token::Kind::block_begin);
            if (ended) return out;
            out.push_back(statement());
        }
    }
    if (ends.size() != 0) wrong("expected {% " + std::string(*(ends.end() - 1)) + " %}");
    return out;
}

Statement Parser::statement() {
    const int line = current().line;
    if (skip_name("if")) return condition();
    if (skip_name("for")) return loop();
    if (skip_name("set")) return assignment();
    if (skip_name("macro")) return macro();
    if (is_name("break") || is_name("continue")) {
        if (loops_ == 0) wrong("not inside a loop");
        const bool leave = next_token().text == "break";
        end_tag();
        return {leave ? Statement::Kind::leave : Statement::Kind::next, line};
    }
    if (skip_name("generation")) {  // marks answers for training
        Statement out{Statement::Kind::condition, line, literal(true)};
        end_tag();
        out.body = body("endgeneration");
        return out;
    }
    if (!skip_name("filter")) wrong("the tag is not supported by this version");
    Statement out{Statement::Kind::capture, line, filter_chain(true)};
    end_tag();
    out.body = body("endfilter");
    return out;
}

/// Parses the rest of `{% if %}` or `{% elif %}`, which is a condition in the place of the else.
Statement Parser::condition() {
    Statement out{Statement::Kind::condition, current().line, tuple()};
    end_tag();
    out.body = block({"elif", "else", "endif"});
    if (skip_name("elif")) {
        out.else_body.push_back(condition());
        return out;
    }
    if (skip_name("else")) {
        end_tag();
        out.else_body = block({"endif"});
    }
    end_block("endif");
    return out;
}

Statement Parser::loop() {
    Statement out{Statement::Kind::loop, current().line};
    const bool brackets = skip_symbol("(");
    do {
        out.targets.push_back(need_name());
    } while (skip_symbol(","));
    if (brackets) need_symbol(")");
    if (!skip_name("in")) wrong("expected 'in'");
    out.value = tuple(false);
    if (skip_name("if")) out.where = expression();
    if (is_name("recursive")) wrong("recursive loops are not supported by this version");
    end_tag();
    ++loops_;
    out.body = block({"else", "endfor"});
    --loops_;
    if (skip_name("else")) {
        end_tag();
        out.else_body = block({"endfor"});
    }
    end_block("endfor");
    return out;
}

Statement Parser::assignment() {
    Statement out{Statement::Kind::set, current().line};
    out.targets.push_back(need_name());
    if (skip_symbol(".")) out.text = need_name();
    while (out.text.empty() && skip_symbol(",")) out.targets.push_back(need_name());
    if (skip_symbol("=")) {
        out.value = tuple();
        end_tag();
        return out;
    }
    if (!out.text.empty() || out.targets.size() > 1) wrong("expected '='");
    out.kind = Statement::Kind::capture;
    out.value = filter_chain(skip_symbol("|"));
    end_tag();
    out.body = body("endset");
    return out;
}

/// Parses the filters of a block, if it has any. They apply to the name "", whose value is the block's text.
ExpressionPtr Parser::filter_chain(bool given) {
    ExpressionPtr out = make(Kind::name);
    for (; given; given = skip_symbol("|")) {
        out = builtin(find_filter, need_name(), std::move(out));
        if (is_symbol("(")) arguments(out);
    }
    return out;
}

Statement Parser::macro() {
    Statement out{Statement::Kind::macro, current().line, {}, need_name()};
    need_symbol("(");
    while (!skip_symbol(")")) {
        out.targets.push_back(need_name());
        out.defaults.push_back(skip_symbol("=") ? expression() : nullptr);
        if (!is_symbol(")")) need_symbol(",");
    }
    end_tag();
    const int outside = std::exchange(loops_, 0);
    out.body = body("endmacro");
    loops_ = outside;
    return out;
}

}  // namespace

Template::Template(Block program) : program_(std::make_shared<const Block>(std::move(program))) {}

Result<Template> Template::parse(std::string_view source) {
    try {
        return Template(Parser(tokenise(source)).run());
    } catch (const Failure& failure) {
        return bad_input("{}", failure.message);
    }
}

}  // namespace draftscope::jinja
