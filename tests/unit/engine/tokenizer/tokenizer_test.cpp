#include "engine/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <map>

#include "engine/formats/model_file.h"
#include "engine/tokenizer/bpe_merges.h"
#include "engine/tokenizer/pretokenizer.h"
#include "tests/support/demo_model.h"
#include "tests/support/results.h"

namespace draftscope {
namespace {

using ::testing::HasSubstr;

/// Three control tokens (one is a prefix of another), every byte, a few merges, one user-defined
/// token, one unused.
TokenizerSpec small_spec() {
    TokenizerSpec spec;
    spec.file = "m.gguf";
    spec.model = "gpt2";
    spec.pre = "smollm";
    spec.tokens = {"<|end|>", "<|end|>+", "<s>"};
    spec.types = {3, 3, 3};
    const auto add = [&](const std::string& token, int type) {
        spec.tokens.push_back(token);
        spec.types.push_back(type);
    };
    for (int byte = 0; byte < 256; ++byte) add(encode_byte_level(std::string(1, static_cast<char>(byte))), 1);
    for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{
             {"a", "b"}, {"b", "c"}, {"ab", "c"}, {"a", "a"}, {"aa", "aa"}, {" ", "a"}, {"\xff", "\xff"}}) {
        spec.merges.push_back(encode_byte_level(left) + " " + encode_byte_level(right));
        add(encode_byte_level(left + right), 1);
    }
    add("[user]", 4);
    add("[PAD1]", 5);
    spec.eos = {0};
    spec.bos = 2;
    return spec;
}

std::unique_ptr<Tokenizer> small_tokenizer() {
    auto made = Tokenizer::create(small_spec());
    EXPECT_TRUE(is_ok(made));
    return std::move(made).value();
}

std::string refused(TokenizerSpec spec) {
    const auto made = Tokenizer::create(std::move(spec));
    EXPECT_FALSE(made.ok());
    if (made.ok()) return "";
    EXPECT_EQ(made.error().kind, ErrorKind::bad_input);
    return made.error().message;
}

std::string make_bytes(const std::vector<std::uint8_t>& bytes) {
    return {bytes.begin(), bytes.end()};
}

RC_GTEST_PROP(Tokenizer, DecodeOfEncodeIsTheTextForAnyBytes, (const std::vector<std::uint8_t>& bytes)) {
    static const auto tokenizer = small_tokenizer();
    const std::string text = make_bytes(bytes);
    RC_ASSERT(tokenizer->decode(tokenizer->encode(text, false)) == text);
    RC_ASSERT(tokenizer->decode(tokenizer->encode(text, true), true) == text);
}

/// Random texts of letters, digits, spaces, control tokens and truncated characters.
rc::Gen<std::string> arbitrary_text() {
    const auto piece =
        rc::gen::element<std::string>("a", "b", "c", "ab", "abc", " ", "  ", "\n", "7", "é", "世", "😀",
                                      "\xc3", "\xff\xff", "\xf0\x9f", "<|end|>", "<s>", "[user]");
    return rc::gen::map(rc::gen::container<std::vector<std::string>>(piece), [](const auto& pieces) {
        std::string out;
        for (const std::string& next : pieces) out += next;
        return out;
    });
}

RC_GTEST_PROP(Tokenizer, DecodeOfEncodeIsTheTextForTextLikeBytes, ()) {
    static const auto tokenizer = small_tokenizer();
    const std::string text = *arbitrary_text();
    RC_ASSERT(tokenizer->decode(tokenizer->encode(text, false)) == text);
    RC_ASSERT(tokenizer->decode(tokenizer->encode(text, true), true) == text);
}

RC_GTEST_PROP(Tokenizer, StreamedTextIsTheValidFormOfAllBytes, ()) {
    static const auto tokenizer = small_tokenizer();
    const std::string text = *arbitrary_text();
    const auto ids = tokenizer->encode(text, true);
    TextStream stream(*tokenizer);
    std::string out;
    for (const TokenId id : ids) {
        stream.push(id, out);
        RC_ASSERT(valid_utf8(out) == out);
    }
    out += stream.finish();
    RC_ASSERT(out == valid_utf8(tokenizer->decode(ids)));
}

/// Reference implementation: repeatedly merges the best-ranked, leftmost adjacent pair.
std::vector<TokenId> merge_plainly(
    std::vector<TokenId> ids, const std::map<std::pair<TokenId, TokenId>, std::pair<int, TokenId>>& pairs) {
    for (;;) {
        int best = std::numeric_limits<int>::max();
        std::size_t at = 0;
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
            const auto found = pairs.find({ids[i], ids[i + 1]});
            if (found != pairs.end() && found->second.first < best) {
                best = found->second.first;
                at = i;
            }
        }
        if (best == std::numeric_limits<int>::max()) return ids;
        ids[at] = pairs.at({ids[at], ids[at + 1]}).second;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
}

RC_GTEST_PROP(BpeMerges, HeapMergesAsTheDefinitionDoes, ()) {
    constexpr int letters = 3;
    const auto any_pair = rc::gen::pair(rc::gen::inRange(0, 12), rc::gen::inRange(0, 12));
    const auto wanted = *rc::gen::container<std::vector<std::pair<int, int>>>(any_pair);
    std::map<std::pair<TokenId, TokenId>, std::pair<int, TokenId>> pairs;
    BpeMerges merges(wanted.size());
    TokenId next = letters;
    for (const auto& pair : wanted) {
        if (pairs.count(pair) != 0) continue;
        pairs[pair] = {next, next};
        merges.add(pair.first, pair.second, next, next);
        ++next;
    }
    const auto ids = *rc::gen::container<std::vector<TokenId>>(rc::gen::inRange(0, letters));
    BpeMerges::Scratch scratch;
    std::vector<TokenId> out;
    merges.apply(ids, scratch, out);
    RC_ASSERT(out == merge_plainly(ids, pairs));
}

TEST(Tokenizer, ControlTokensAreParsedOnlyOnRequestAndTheLongestWins) {
    const auto tokenizer = small_tokenizer();
    EXPECT_EQ(tokenizer->encode("<|end|>", true), (std::vector<TokenId>{0}));
    EXPECT_EQ(tokenizer->encode("<|end|>+", true), (std::vector<TokenId>{1}));
    EXPECT_EQ(tokenizer->encode("<s><|end|><s>", true), (std::vector<TokenId>{2, 0, 2}));
    EXPECT_EQ(tokenizer->encode("<|end|>", false).size(), 7u);
    // User-defined tokens are always matched in text.
    const TokenId user = 3 + 256 + 7;
    EXPECT_EQ(tokenizer->encode("[user]", false), (std::vector<TokenId>{user}));
    EXPECT_EQ(tokenizer->decode({user}), "[user]");
    EXPECT_EQ(tokenizer->token_bytes(user + 1), "") << "unused rows have no text";
}

TEST(Tokenizer, SplitsInvalidBytesIntoSeparatePieces) {
    const auto tokenizer = small_tokenizer();
    const auto ids = tokenizer->encode(
        "a\xff\xff\xff"
        "a",
        false);
    ASSERT_EQ(ids.size(), 4u);
    EXPECT_EQ(tokenizer->token_bytes(ids[1]), "\xff\xff") << "merges apply inside a run of invalid bytes";
    EXPECT_EQ(tokenizer->token_bytes(ids[2]), "\xff");
}

TEST(Tokenizer, LongPiecesAreMergedInReasonableTime) {
    const auto tokenizer = small_tokenizer();
    const std::string text(1 << 20, 'a');
    const auto ids = tokenizer->encode(text, false);
    EXPECT_EQ(ids.size(), text.size() / 4);
    EXPECT_EQ(tokenizer->decode(ids), text);
}

TEST(Tokenizer, NormalisesForQwenAndIgnoresMergesForLlama) {
    TokenizerSpec spec = small_spec();
    spec.pre = "qwen2";
    const auto qwen = require(Tokenizer::create(spec));
    EXPECT_EQ(qwen->decode(qwen->encode("e\u0301", false)), "\u00e9");
    // "bcd" is a token that no merge produces.
    spec.pre = "llama-bpe";
    spec.tokens.push_back("bcd");
    spec.types.push_back(1);
    const auto id = static_cast<TokenId>(spec.tokens.size() - 1);
    const auto llama = require(Tokenizer::create(spec));
    EXPECT_EQ(llama->encode("bcd", false), (std::vector<TokenId>{id}));
    spec.pre = "gpt-2";
    EXPECT_EQ((*Tokenizer::create(spec))->encode("bcd", false).size(), 2u);
}

TEST(Tokenizer, FingerprintIdentifiesTheVocabulary) {
    const std::uint64_t base = small_tokenizer()->fingerprint();
    EXPECT_EQ(small_tokenizer()->fingerprint(), base);
    TokenizerSpec other = small_spec();
    other.pre = "gpt-2";
    EXPECT_NE((*Tokenizer::create(other))->fingerprint(), base);
    other = small_spec();
    std::swap(other.merges[0], other.merges[1]);
    EXPECT_NE((*Tokenizer::create(other))->fingerprint(), base);
    other = small_spec();
    other.tokens.back() = "[PAD2]";
    EXPECT_NE((*Tokenizer::create(other))->fingerprint(), base);
}

TEST(Tokenizer, RejectsInvalidSpecsWithTheReason) {
    TokenizerSpec spec = small_spec();
    spec.model = "bert";
    EXPECT_THAT(refused(spec), HasSubstr("m.gguf: tokenizer model 'bert'"));
    spec = small_spec();
    spec.pre = "viking";
    EXPECT_THAT(refused(spec), HasSubstr("m.gguf: pre-tokenizer 'viking' is not supported"));
    spec = small_spec();
    spec.types.pop_back();
    EXPECT_THAT(refused(spec), HasSubstr("token types"));
    spec = small_spec();
    spec.merges.push_back("a zz");
    EXPECT_THAT(refused(spec), HasSubstr("tokenizer merge 7 ('a zz')"));
    spec = small_spec();
    spec.merges.push_back("ab");
    EXPECT_THAT(refused(spec), HasSubstr("tokenizer merge 7 ('ab')"));
    spec = small_spec();
    spec.eos.push_back(5000);
    EXPECT_THAT(refused(spec), HasSubstr("end-of-text id 5000"));
    spec = small_spec();
    spec.bos = 5000;
    EXPECT_THAT(refused(spec), HasSubstr("beginning-of-text id 5000"));
    spec = small_spec();
    spec.add_bos = true;
    spec.bos = no_token;
    EXPECT_THAT(refused(spec), HasSubstr("names none"));
    spec = TokenizerSpec();
    spec.model = "gpt2";
    EXPECT_THAT(refused(spec), HasSubstr("no tokens"));
}

TEST(Tokenizer, DemoVocabularyDropsOnlyTheBytesItLacks) {
    ASSERT_TRUE(testing::demo_model_present()) << testing::demo_model_hint();
    const auto file = require(open_model_file(testing::demo_model_path()));
    const Tokenizer& tokenizer = *file.tokenizer;
    std::string lacking;
    for (int byte = 0; byte < 256; ++byte) {
        const std::string text(1, static_cast<char>(byte));
        const std::string back = tokenizer.decode(tokenizer.encode(text, false));
        if (back.empty())
            lacking += text;
        else
            EXPECT_EQ(back, text);
    }
    EXPECT_EQ(lacking.size(), 21u);
    EXPECT_TRUE(rc::check("decode(encode(x)) is x without them", [&](const std::vector<std::uint8_t>& bytes) {
        const std::string text = make_bytes(bytes);
        std::string expected;
        for (const char c : text) {
            if (lacking.find(c) == std::string::npos) expected += c;
        }
        RC_ASSERT(tokenizer.decode(tokenizer.encode(text, false)) == expected);
    }));
}

TEST(ValidUtf8, EachIllFormedSequenceBecomesOneReplacement) {
    // Equals Python's decode(errors="replace").
    EXPECT_EQ(valid_utf8("plain é 世 😀"), "plain é 世 😀");
    EXPECT_EQ(valid_utf8("\xff"), "\ufffd");
    EXPECT_EQ(valid_utf8("a\x80z"), "a\ufffdz");
    EXPECT_EQ(valid_utf8("\xc0\xaf"), "\ufffd\ufffd");
    EXPECT_EQ(valid_utf8("\xe4\xb8"), "\ufffd");
    EXPECT_EQ(valid_utf8("\xe4\xb8z"), "\ufffdz");
    EXPECT_EQ(valid_utf8("\xf0\x9f\x98"), "\ufffd");
    EXPECT_EQ(valid_utf8("\xed\xa0\x80"), "\ufffd\ufffd\ufffd") << "surrogates are not characters";
    EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd") << "beyond U+10FFFF";
    EXPECT_EQ(valid_utf8(std::string_view("\0", 1)), std::string(1, '\0'));
}

TEST(TextStream, HoldsBackIncompleteCharacters) {
    const auto tokenizer = small_tokenizer();
    TextStream stream(*tokenizer);
    const auto ids = tokenizer->encode("😀", false);
    ASSERT_EQ(ids.size(), 4u);
    const auto pushed = [&](TokenId id) {
        std::string out = ">";
        stream.push(id, out);
        return out;
    };
    EXPECT_EQ(pushed(ids[0]), ">");
    EXPECT_EQ(pushed(ids[1]), ">");
    EXPECT_EQ(pushed(ids[2]), ">");
    EXPECT_EQ(pushed(ids[3]), ">😀");
    EXPECT_EQ(pushed(0), ">") << "control tokens are no text";
    EXPECT_EQ(pushed(ids[0]), ">");
    EXPECT_EQ(stream.finish(), "\ufffd");
    EXPECT_EQ(stream.finish(), "");
}

TEST(ByteToUnicode, MatchesGpt2Table) {
    EXPECT_EQ(encode_byte_level(" \n!~"), "\u0120\u010a!~");
    EXPECT_EQ(encode_byte_level(std::string_view("\0\x7f\xad\xff", 4)), "\u0100\u0121\u0143\u00ff");
    for (int byte = 0; byte < 256; ++byte) {
        const std::string one(1, static_cast<char>(byte));
        EXPECT_EQ(decode_byte_level(encode_byte_level(one)), one);
    }
    EXPECT_FALSE(decode_byte_level("a b").has_value()) << "a plain space is not in the table";
    EXPECT_FALSE(decode_byte_level("\xff").has_value());
    EXPECT_FALSE(decode_byte_level("\u0144").has_value());
}

}  // namespace
}  // namespace draftscope
