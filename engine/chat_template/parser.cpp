#include "engine/chat_template/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "engine/chat_template/lexer.h"

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
        auto out = std::make_unique<Expression>();
        out->kind = kind;
        out->line = current().line;
        out->text = std::move(text);
        return out;
    }
    void add(ExpressionPtr& to, ExpressionPtr part) const {
        if (part) to->depth = std::max(to->depth, part->depth + 1);
        if (to->depth > max_expression_depth) wrong("an expression is too long");
        to->parts.push_back(std::move(part));
    }
    ExpressionPtr binary(std::string op, ExpressionPtr left, ExpressionPtr right) const {
        ExpressionPtr out = make(Kind::binary, std::move(op));
        add(out, std::move(left));
        add(out, std::move(right));
        return out;
    }
    ExpressionPtr unary(std::string op, ExpressionPtr operand) const {
        ExpressionPtr out = make(Kind::unary, std::move(op));
        add(out, std::move(operand));
        return out;
    }

    // Expressions, in the order of Jinja's precedences.
    ExpressionPtr expression(bool with_choice = true);
    ExpressionPtr tuple(bool with_choice);
    ExpressionPtr either();
    ExpressionPtr both();
    ExpressionPtr negated();
    ExpressionPtr compared();
    ExpressionPtr binary_level(std::size_t level);
    ExpressionPtr power();
    ExpressionPtr signed_value(bool with_filters);
    ExpressionPtr primary();
    ExpressionPtr postfix(ExpressionPtr subject);
    ExpressionPtr subscript(ExpressionPtr subject);
    ExpressionPtr filters(ExpressionPtr subject);
    ExpressionPtr tested(ExpressionPtr subject);
    void arguments(ExpressionPtr& call);
    ExpressionPtr dictionary();

    // Statements.
    Block block(std::initializer_list<std::string_view> ends);
    Statement statement();
    Statement loop();
    Statement condition();
    Statement assignment();
    Statement macro();
    ExpressionPtr filter_chain();
    void end_block(std::string_view name) {
        if (!skip_name(name)) wrong("expected {% " + std::string(name) + " %}");
        need(Token::Kind::block_end);
    }

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    int nesting_ = 0;
    int loops_ = 0;
};

ExpressionPtr Parser::expression(bool with_choice) {
    const Nested nested(*this);
    ExpressionPtr out = either();
    while (with_choice && is_name("if")) {
        ExpressionPtr choice = make(Kind::choice);
        next_token();
        add(choice, std::move(out));
        add(choice, either());
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

ExpressionPtr Parser::either() {
    ExpressionPtr out = both();
    while (skip_name("or")) out = binary("or", std::move(out), both());
    return out;
}

ExpressionPtr Parser::both() {
    ExpressionPtr out = negated();
    while (skip_name("and")) out = binary("and", std::move(out), negated());
    return out;
}

ExpressionPtr Parser::negated() {
    const Nested nested(*this);
    if (skip_name("not")) return unary("not", negated());
    return compared();
}

/// `a < b < c` means `a < b and b < c`. Templates use pairs only; longer chains are errors.
ExpressionPtr Parser::compared() {
    ExpressionPtr left = binary_level(0);
    std::string op;
    if (current().kind == Token::Kind::symbol) {
        for (const std::string_view known : {"==", "!=", "<=", ">=", "<", ">"}) {
            if (is_symbol(known)) op = known;
        }
    } else if (is_name("in")) {
        op = "in";
    } else if (is_name("not") && after().kind == Token::Kind::name && after().text == "in") {
        op = "not in";
        next_token();
    }
    if (op.empty()) return left;
    next_token();
    ExpressionPtr out = binary(op, std::move(left), binary_level(0));
    for (const std::string_view known : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (is_symbol(known)) wrong("chained comparisons are not supported by this version");
    }
    return out;
}

/// Binary operators by increasing precedence: sums, `~`, products.
ExpressionPtr Parser::binary_level(std::size_t level) {
    static const std::vector<std::vector<std::string_view>> operators = {
        {"+", "-"}, {"~"}, {"*", "//", "/", "%"}};
    if (level == operators.size()) return power();
    ExpressionPtr out = binary_level(level + 1);
    while (current().kind == Token::Kind::symbol &&
           std::count(operators[level].begin(), operators[level].end(), current().text) != 0) {
        std::string op = next_token().text;
        out = binary(std::move(op), std::move(out), binary_level(level + 1));
    }
    return out;
}

ExpressionPtr Parser::power() {
    ExpressionPtr out = signed_value(true);
    while (skip_symbol("**")) out = binary("**", std::move(out), signed_value(true));
    return out;
}

ExpressionPtr Parser::signed_value(bool with_filters) {
    const Nested nested(*this);
    ExpressionPtr out;
    if (is_symbol("-") || is_symbol("+")) {
        std::string op = next_token().text;
        out = unary(std::move(op), signed_value(false));
    } else {
        out = postfix(primary());
    }
    return with_filters ? filters(std::move(out)) : std::move(out);
}

ExpressionPtr Parser::primary() {
    ExpressionPtr out = make(Kind::literal);
    if (current().kind == Token::Kind::text) {
        std::string text;
        while (current().kind == Token::Kind::text) text += next_token().text;
        out->value = Value(std::move(text));
        return out;
    }
    if (current().kind == Token::Kind::integer || current().kind == Token::Kind::floating) {
        const bool is_integer = current().kind == Token::Kind::integer;
        std::int64_t integer = 0;
        double number = 0;
        const std::string& digits = current().text;
        const char* end = digits.data() + digits.size();
        const auto read = is_integer ? std::from_chars(digits.data(), end, integer).ec
                                     : std::from_chars(digits.data(), end, number).ec;
        if (read != std::errc()) wrong("a number is out of range");
        next_token();
        out->value = is_integer ? Value(integer) : Value(number);
        return out;
    }
    if (current().kind == Token::Kind::name) {
        const std::string name = next_token().text;
        if (name == "true" || name == "True" || name == "false" || name == "False") {
            out->value = Value(name[0] == 't' || name[0] == 'T');
        } else if (name == "none" || name == "None") {
            out->value = Value(None{});
        } else {
            out->kind = Kind::name;
            out->text = name;
        }
        return out;
    }
    if (skip_symbol("(")) {
        if (skip_symbol(")")) {
            out->kind = Kind::list;
            return out;
        }
        ExpressionPtr inner = tuple(true);
        need_symbol(")");
        return inner;
    }
    if (skip_symbol("[")) {
        out->kind = Kind::list;
        while (!skip_symbol("]")) {
            add(out, expression());
            if (!is_symbol("]")) need_symbol(",");
        }
        return out;
    }
    if (is_symbol("{")) return dictionary();
    wrong("expected a value");
}

ExpressionPtr Parser::dictionary() {
    ExpressionPtr out = make(Kind::dict);
    need_symbol("{");
    while (!skip_symbol("}")) {
        add(out, expression());
        need_symbol(":");
        add(out, expression());
        if (!is_symbol("}")) need_symbol(",");
    }
    return out;
}

ExpressionPtr Parser::postfix(ExpressionPtr subject) {
    while (true) {
        if (skip_symbol(".")) {
            const bool index = current().kind == Token::Kind::integer;
            ExpressionPtr out = make(index ? Kind::subscript : Kind::attribute);
            add(out, std::move(subject));
            if (index)
                add(out, primary());
            else
                out->text = need_name();
            subject = std::move(out);
        } else if (is_symbol("[")) {
            subject = subscript(std::move(subject));
        } else if (is_symbol("(")) {
            ExpressionPtr out = make(Kind::call);
            add(out, std::move(subject));
            arguments(out);
            subject = std::move(out);
        } else {
            return subject;
        }
    }
}

ExpressionPtr Parser::subscript(ExpressionPtr subject) {
    ExpressionPtr out = make(Kind::subscript);
    need_symbol("[");
    add(out, std::move(subject));
    ExpressionPtr bounds[3];
    int given = 0;
    while (!is_symbol("]")) {
        if (skip_symbol(":")) {
            out->kind = Kind::slice;
            if (++given > 2) wrong("a slice has too many parts");
        } else {
            if (bounds[given] != nullptr) wrong("expected ']'");
            bounds[given] = expression();
        }
    }
    need_symbol("]");
    if (out->kind == Kind::subscript && bounds[0] == nullptr) wrong("expected an index");
    const int count = out->kind == Kind::slice ? 3 : 1;
    for (int i = 0; i < count; ++i) add(out, std::move(bounds[i]));
    return out;
}

/// Parses `(a, b, name=c)` and appends it to the existing parts.
void Parser::arguments(ExpressionPtr& call) {
    need_symbol("(");
    while (!skip_symbol(")")) {
        if (is_symbol("*")) wrong("'*' in arguments is not supported by this version");
        const bool named =
            current().kind == Token::Kind::name && after().kind == Token::Kind::symbol && after().text == "=";
        if (named) {
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
            ExpressionPtr out = make(Kind::filter);
            out->text = need_name();
            add(out, std::move(subject));
            if (is_symbol("(")) arguments(out);
            subject = std::move(out);
        } else if (skip_name("is")) {
            subject = tested(std::move(subject));
        } else {
            return subject;
        }
    }
}

ExpressionPtr Parser::tested(ExpressionPtr subject) {
    const bool inverted = skip_name("not");
    ExpressionPtr out = make(Kind::test);
    if (current().kind == Token::Kind::symbol && is_symbol("=="))
        out->text = next_token().text;
    else
        out->text = need_name();
    add(out, std::move(subject));
    const Token::Kind kind = current().kind;
    const bool word = kind == Token::Kind::name && !is_name("else") && !is_name("or") && !is_name("and") &&
                      !is_name("if") && !is_name("is") && !is_name("not");
    if (is_symbol("(")) {
        arguments(out);
    } else if (word || kind == Token::Kind::text || kind == Token::Kind::integer ||
               kind == Token::Kind::floating || is_symbol("[") || is_symbol("{")) {
        add(out, postfix(primary()));
    }
    return inverted ? unary("not", std::move(out)) : std::move(out);
}

/// Parses statements up to a tag in `ends`, whose name is the next token.
Block Parser::block(std::initializer_list<std::string_view> ends) {
    const Nested nested(*this);
    Block out;
    while (current().kind != Token::Kind::end) {
        if (current().kind == Token::Kind::data) {
            Statement text{Statement::Kind::text, current().line, current().text, {}, {}, {}, {}, {}, {}, {}};
            next_token();
            out.push_back(std::move(text));
        } else if (current().kind == Token::Kind::output_begin) {
            next_token();
            Statement output{Statement::Kind::output, current().line, {}, {}, {}, {}, {}, {}, {}, {}};
            output.value = tuple(true);
            need(Token::Kind::output_end);
            out.push_back(std::move(output));
        } else {
            const Token& name = after();
            if (std::count(ends.begin(), ends.end(), name.text) != 0) {
                next_token();
                return out;
            }
            need(Token::Kind::block_begin);
            out.push_back(statement());
        }
    }
    if (ends.size() != 0) wrong("expected {% " + std::string(*(ends.end() - 1)) + " %}");
    return out;
}

Statement Parser::statement() {
    const int line = current().line;
    Statement out;
    if (is_name("if")) {
        out = condition();
    } else if (is_name("for")) {
        out = loop();
    } else if (is_name("set")) {
        out = assignment();
    } else if (is_name("macro")) {
        out = macro();
    } else if (is_name("break") || is_name("continue")) {
        if (loops_ == 0) wrong("not inside a loop");
        out.kind = next_token().text == "break" ? Statement::Kind::leave : Statement::Kind::next;
        need(Token::Kind::block_end);
    } else if (skip_name("generation")) {
        out.kind = Statement::Kind::plain;
        need(Token::Kind::block_end);
        out.body = block({"endgeneration"});
        end_block("endgeneration");
    } else if (skip_name("filter")) {
        out.kind = Statement::Kind::filter;
        out.value = filter_chain();
        need(Token::Kind::block_end);
        out.body = block({"endfilter"});
        end_block("endfilter");
    } else {
        wrong("the tag is not supported by this version");
    }
    out.line = line;
    return out;
}

Statement Parser::condition() {
    Statement out;
    out.kind = Statement::Kind::condition;
    next_token();
    while (true) {
        ExpressionPtr when = tuple(true);
        need(Token::Kind::block_end);
        Block body = block({"elif", "else", "endif"});
        out.branches.emplace_back(std::move(when), std::move(body));
        if (!skip_name("elif")) break;
    }
    if (skip_name("else")) {
        need(Token::Kind::block_end);
        Block body = block({"endif"});
        out.branches.emplace_back(nullptr, std::move(body));
    }
    end_block("endif");
    return out;
}

Statement Parser::loop() {
    Statement out;
    out.kind = Statement::Kind::loop;
    next_token();
    const bool brackets = skip_symbol("(");
    do {
        out.targets.push_back(need_name());
    } while (skip_symbol(","));
    if (brackets) need_symbol(")");
    if (!skip_name("in")) wrong("expected 'in'");
    out.value = tuple(false);
    if (skip_name("if")) out.where = expression();
    if (is_name("recursive")) wrong("recursive loops are not supported by this version");
    need(Token::Kind::block_end);
    ++loops_;
    out.body = block({"else", "endfor"});
    --loops_;
    if (skip_name("else")) {
        need(Token::Kind::block_end);
        out.else_body = block({"endfor"});
    }
    end_block("endfor");
    return out;
}

Statement Parser::assignment() {
    Statement out;
    out.kind = Statement::Kind::set;
    next_token();
    out.targets.push_back(need_name());
    if (skip_symbol(".")) out.text = need_name();
    while (out.text.empty() && skip_symbol(",")) out.targets.push_back(need_name());
    if (skip_symbol("=")) {
        out.value = tuple(true);
        need(Token::Kind::block_end);
        return out;
    }
    if (!out.text.empty() || out.targets.size() > 1) wrong("expected '='");
    out.kind = Statement::Kind::set_block;
    if (skip_symbol("|")) out.value = filter_chain();
    need(Token::Kind::block_end);
    out.body = block({"endset"});
    end_block("endset");
    return out;
}

/// Parses filters whose subject is a placeholder, the name "", that the interpreter fills in.
ExpressionPtr Parser::filter_chain() {
    ExpressionPtr out = make(Kind::name, "");
    do {
        ExpressionPtr next = make(Kind::filter, need_name());
        add(next, std::move(out));
        if (is_symbol("(")) arguments(next);
        out = std::move(next);
    } while (skip_symbol("|"));
    return out;
}

Statement Parser::macro() {
    Statement out;
    out.kind = Statement::Kind::macro;
    next_token();
    out.text = need_name();
    need_symbol("(");
    while (!skip_symbol(")")) {
        out.targets.push_back(need_name());
        out.defaults.push_back(skip_symbol("=") ? expression() : nullptr);
        if (!is_symbol(")")) need_symbol(",");
    }
    need(Token::Kind::block_end);
    const int outside = std::exchange(loops_, 0);
    out.body = block({"endmacro"});
    loops_ = outside;
    end_block("endmacro");
    return out;
}

}  // namespace

Block parse(std::string_view source) {
    return Parser(tokenise(source)).run();
}

}  // namespace draftscope::jinja
