#include "app/jobs/run/conversation_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_model.h"

namespace draftscope {
namespace {

using ::testing::HasSubstr;

/// A tiny GGUF model with changed metadata.
class ChangedModel {
  public:
    template <typename Value>
    ChangedModel(const char* key, const Value& value) {
        testing::GgufWriter writer = testing::make_tiny_gguf(1);
        writer.remove(key);
        writer.add(key, value);
        EXPECT_TRUE(is_ok(writer.write(folder_.file("m.gguf"))));
        target_ = require(Target::load(folder_.file("m.gguf"), *exec_, kernels::Precision::f32));
    }
    const Target& target() const { return *target_; }
    std::vector<TokenId> prompt(const RunConfig& config, std::string text) {
        Conversation one;
        one.turns = {std::move(text)};
        Notes notes;
        const ChatTemplate chat = require(choose_chat(*target_, config, {}, notes));
        return require(ConversationFeed::first_turn(*target_, one, chat));
    }

  private:
    testing::ScratchFolder folder_;
    std::unique_ptr<kernels::Backend> exec_ = kernels::make_cpu_backend(1);
    std::unique_ptr<Target> target_;
};

TEST(ConversationFeed, EndOfTextFollowsEveryPrompt) {
    constexpr const char* key = "tokenizer.ggml.add_eos_token";
    ChangedModel with(key, true), without(key, false);
    const TokenId eos = with.target().tokenizer()->named_eos();
    for (const bool raw : {false, true}) {
        RunConfig config;
        config.raw = raw;
        std::vector<TokenId> expected = without.prompt(config, "hello");
        EXPECT_NE(expected.back(), eos);
        expected.push_back(eos);
        EXPECT_EQ(with.prompt(config, "hello"), expected);
    }
    RunConfig raw;
    raw.raw = true;
    EXPECT_EQ(with.prompt(raw, "hello<|im_end|>"), with.prompt(raw, "hello")) << "not twice";
}

TEST(ConversationFeed, ATemplateMayNeedASwitch) {
    ChangedModel model("tokenizer.chat_template",
                       std::string("{% if not style %}{{ raise_exception('name a style') }}{% endif %}"
                                   "{{ style }} {{ messages[0].content }}"));
    RunConfig config;
    Notes notes;
    const auto refused = choose_chat(model.target(), config, {}, notes);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("name a style"));
    EXPECT_THAT(refused.error().message, HasSubstr("--template KEY=VALUE"));
    config.template_switches = {"style=short"};
    EXPECT_EQ(model.target().tokenizer()->decode(model.prompt(config, "hello")), "short hello");
    config.template_switches.clear();
    config.raw = true;
    EXPECT_EQ(model.target().tokenizer()->decode(model.prompt(config, "hello")), "hello");
}

}  // namespace
}  // namespace draftscope
