#include "engine/model/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftscope {
namespace {

using ::testing::HasSubstr;

const std::vector<ChatMessage> question = {{"user", " Why? "}};
const std::vector<ChatMessage> conversation = {
    {"system", "Be brief."}, {"user", "one"}, {"assistant", "two"}, {"user", "three"}};

std::string render(std::string_view source, const std::vector<ChatMessage>& messages) {
    const auto chat = ChatTemplate::from_source(source, "m.gguf");
    EXPECT_TRUE(chat.ok()) << chat.error().message;
    return chat.ok() ? chat->render(messages) : "";
}

TEST(ChatTemplate, WithoutTemplateContentsAreJoined) {
    EXPECT_EQ(render("", conversation), "Be brief.onetwothree");
    EXPECT_EQ(ChatTemplate::from_source(" \n", "m.gguf")->name(), "raw");
}

TEST(ChatTemplate, ChatMlWithoutDefaultSystemMessage) {
    const char* source =
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
        "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% "
        "endif %}";
    EXPECT_EQ(render(source, question), "<|im_start|>user\n Why? <|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, ChatMlDefaultSystemMessageIsReadFromTheTemplate) {
    // Escaped and plain newlines mean the same inside a Jinja string.
    for (const std::string newline : {"\\n", "\n"}) {
        const std::string source =
            "{% if messages[0]['role'] == 'system' %}{{ '<|im_start|>system" + newline +
            "' + messages[0]['content'] + '<|im_end|>' }}{% else %}{{ '<|im_start|>system" + newline +
            "You\\'re a test.<|im_end|>" + newline + "' }}{% endif %}{{ '<|im_start|>assistant" + newline +
            "' }}";
        EXPECT_EQ(render(source, question),
                  "<|im_start|>system\nYou're a test.<|im_end|>\n<|im_start|>user\n Why? <|im_end|>\n"
                  "<|im_start|>assistant\n");
        EXPECT_EQ(render(source, conversation),
                  "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\none<|im_end|>\n"
                  "<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n"
                  "<|im_start|>assistant\n");
    }
}

TEST(ChatTemplate, Llama3TrimsContents) {
    const char* source =
        "{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' "
        "+ "
        "message['content'] | trim + '<|eot_id|>' }}{% endfor %}";
    EXPECT_EQ(render(source, question),
              "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\n");
    EXPECT_EQ(render(source, {{"user", "\u3000\u00a0 a b\u2028\n"}}),
              "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\na b<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(ChatTemplate, Llama31AlwaysWritesASystemTurnWithAFixedDate) {
    const char* source = "{{ '<|start_header_id|>' }} Cutting Knowledge Date: x | trim <|eot_id|>";
    const std::string head =
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December "
        "2023\n"
        "Today Date: 26 Jul 2024\n\n";
    EXPECT_EQ(render(source, question),
              head +
                  "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
                  "<|start_header_id|>assistant<|end_header_id|>\n\n");
    EXPECT_THAT(render(source, conversation),
                HasSubstr(head + "Be brief.<|eot_id|><|start_header_id|>user<"));
}

TEST(ChatTemplate, Qwen3DropsEarlierThoughts) {
    const char* source =
        "{%- set ns = namespace(last_query_index=messages|length - 1) %}{{- '<|im_start|>' + message.role + "
        "'\\n' + content.split('</think>')[-1].lstrip('\\n') + '<|im_end|>\\n' }}{{- '<|im_start|>assistant"
        "\\n' }}{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>' }}{%- endif "
        "%}";
    EXPECT_EQ(ChatTemplate::from_source(source, "m")->name(), "qwen3");
    EXPECT_EQ(render(source, question), "<|im_start|>user\n Why? <|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(
        render(source,
               {{"user", "one</think>"}, {"assistant", "<think>\nhm</think>\n\ntwo\n"}, {"user", "three"}}),
        "<|im_start|>user\none</think><|im_end|>\n<|im_start|>assistant\ntwo\n<|im_end|>\n"
        "<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, Olmo2EndsAnswersOnly) {
    const char* source =
        "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '<|user|>\\n' + "
        "message['content'] + '\\n' }}{% else %}{{ '<|assistant|>\\n' + message['content'] + eos_token + "
        "'\\n' }}{% endif %}{% endfor %}{{ '<|assistant|>\\n' }}";
    EXPECT_EQ(ChatTemplate::from_source(source, "m")->name(), "olmo2");
    EXPECT_EQ(render(source, conversation),
              "<|endoftext|><|system|>\nBe brief.\n<|user|>\none\n<|assistant|>\ntwo<|endoftext|>\n"
              "<|user|>\nthree\n<|assistant|>\n");
    // Zephyr's kin end every turn.
    EXPECT_FALSE(
        ChatTemplate::from_source("{{ bos_token }}{{ '<|user|>\\n' + message['content'] + eos_token }}", "m")
            .ok());
}

TEST(ChatTemplate, WhatIsNotRecognisedIsNamed) {
    const auto refused = [](std::string_view source) {
        const auto chat = ChatTemplate::from_source(source, "m.gguf");
        EXPECT_FALSE(chat.ok());
        return chat.ok() ? "" : chat.error().message;
    };
    EXPECT_THAT(refused("[INST] {{ x }} [/INST]"), HasSubstr("m.gguf: the chat template is not recognised"));
    EXPECT_THAT(refused("[INST] {{ x }} [/INST]"), HasSubstr("--raw"));
    EXPECT_THAT(refused("[INST] {{ x }} [/INST]"), HasSubstr("starts with: [INST]"));
    // ChatML that does more than ChatML.
    EXPECT_THAT(refused("<|im_start|>assistant {{ message.content | trim }}<|im_end|>"), HasSubstr("'trim'"));
    EXPECT_THAT(refused("<|im_start|>assistant <think> <|im_end|>"), HasSubstr("'<think>'"));
    EXPECT_THAT(refused("<|im_start|>system\nalways<|im_end|><|im_start|>assistant"),
                HasSubstr("fixed system"));
    EXPECT_THAT(refused("<|im_start|>user"), HasSubstr("without an assistant"));
}

TEST(ChatTemplate, RawBecauseKeepsTheReason) {
    const ChatTemplate chat = ChatTemplate::raw_because("why");
    EXPECT_EQ(chat.name(), "raw");
    EXPECT_EQ(chat.problem(), "why");
    EXPECT_EQ(chat.render(conversation), "Be brief.onetwothree");
}

}  // namespace
}  // namespace draftscope
