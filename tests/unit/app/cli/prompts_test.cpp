#include <nlohmann/json.hpp>

#include "tests/unit/app/cli/program.h"
#include "tests/unit/app/cli/sql.h"

// Prompts and chat templates as other programs write them, up to the tokens of a run.
namespace draftscope::testing {
namespace {

using nlohmann::json;

constexpr const char* chatml =
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}{% if "
    "add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

class Prompts : public ::testing::Test {
  protected:
    /// Returns a model folder with this template; "" = none.
    std::string model(const std::string& chat, const json& settings = json::object()) {
        const std::string path = folder_.file("model" + std::to_string(models_++));
        std::filesystem::copy(DS_SOURCE_DIR "/tests/golden/models/qwen2", path);
        json config = settings;
        if (!chat.empty()) config["chat_template"] = chat;
        write_text(path + "/tokenizer_config.json", config.dump());
        return path;
    }
    std::string file(const std::string& text) {
        write_text(folder_.file("prompts"), text);
        return folder_.file("prompts");
    }
    Arguments words(const std::string& path) const {
        return arguments("run --model {} --drafter none --max-new 2 --ignore-eos --quiet --json", path);
    }
    ProcessResult decode(const std::string& path, const Arguments& more) {
        return run(folder_, words(path) + more);
    }
    static std::vector<int> prompt_tokens(const ProcessResult& done) {
        std::vector<int> out;
        const json document = parse_output(done);
        for (const json& prompt : document["prompts"]) out.push_back(prompt["prompt_tokens"]);
        return out;
    }
    static std::string notes(const ProcessResult& done) {
        std::string out;
        const json document = parse_output(done);
        for (const json& note : document["notes"]) {
            out += note.get<std::string>() + "\n";
            EXPECT_NE(done.err.find(note.get<std::string>()), std::string::npos) << "said on stderr";
        }
        return out;
    }
    static bool has(const std::string& text, const std::string& part) {
        return text.find(part) != std::string::npos;
    }

    ScratchFolder folder_;
    int models_ = 0;
};

TEST_F(Prompts, TypedContentHasTheUsersWords) {
    const std::string typed = model(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for p in m.content %}{% if p.type == 'text' "
        "%}{{ "
        "p.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
        "<|im_start|>assistant\n{% endif %}");
    for (const char* prompt : {"a", "a longer prompt of words"})
        EXPECT_EQ(prompt_tokens(decode(typed, {"--prompt", prompt})),
                  prompt_tokens(decode(model(chatml), {"--prompt", prompt})));
    const ProcessResult lost =
        decode(model("{% for m in messages %}{{ m.role }}{% endfor %}"), {"--prompt", "a"});
    expect_one_line_error(lost, {"does not write the user's text", "--raw"});
}

TEST_F(Prompts, NoTemplateIsSaid) {
    const std::string plain = model("");
    const ProcessResult done = decode(plain, {"--prompt", "a b"});
    EXPECT_TRUE(has(notes(done), plain + ": has no chat template, so prompts are sent as they are"));
    EXPECT_EQ(prompt_tokens(done), prompt_tokens(decode(plain, {"--prompt", "a b", "--raw"})));
    expect_one_line_error(decode(plain, {"--prompt", "a", "--system", "S"}),
                          {"--system S", "no chat template"});
    expect_one_line_error(decode(plain, {"--prompt", "a", "--template", "x=1"}), {"--template x=1"});
}

TEST_F(Prompts, RawTextHasControlTokens) {
    const std::string path = model(chatml);
    const std::string rendered = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    EXPECT_EQ(prompt_tokens(decode(path, {"--prompt", rendered, "--raw"})),
              prompt_tokens(decode(path, {"--prompt", "Hi"})));
}

TEST_F(Prompts, SwitchesAreKeptInTheSetting) {
    const std::string path = model(std::string(chatml) +
                                   "{% if enable_thinking is defined and not enable_thinking %}no{% else %}"
                                   "yes!{% endif %}");
    const Arguments no = {"--template", "enable_thinking=false"};
    const std::string one = folder_.file("one.dscope"), other = folder_.file("other.dscope");
    const auto on = prompt_tokens(decode(path, {"--prompt", "a", "--save", one}));
    const ProcessResult off = decode(path, Arguments{"--prompt", "a", "--save", other} + no);
    EXPECT_EQ(notes(off), "");
    EXPECT_LT(prompt_tokens(off), on);
    const auto kept = [](const std::string& capture) {
        return Sql(capture).text(
            "SELECT json_extract(config_json, '$.template') || coalesce(' ' || "
            "json_extract(plain_setting, '$.template'), '') FROM run");
    };
    EXPECT_EQ(kept(one), "none");
    EXPECT_EQ(kept(other), "enable_thinking=false enable_thinking=false");
    EXPECT_EQ(parse_output(off)["template"], "enable_thinking=false");
    const ProcessResult compared = run(folder_, {"compare", one, other});
    EXPECT_TRUE(has(compared.out + compared.err, "template (none and enable_thinking=false)"))
        << compared.out << compared.err;
    expect_one_line_error(decode(path, {"--prompt", "a", "--save", other, "--resume"}),
                          {"differs", "template"});
    EXPECT_TRUE(has(notes(decode(path, {"--prompt", "a", "--template", "enable_thinkin=0"})),
                    "the chat template does not read enable_thinkin"));
    expect_one_line_error(decode(path, Arguments{"--prompt", "a", "--raw"} + no), {"--template", "--raw"});
    expect_one_line_error(decode(path, {"--prompt", "a", "--template", "enable_thinking"}), {"KEY=VALUE"});
    for (const char* command : {"bench --method ngram", "record --no-times"}) {
        Arguments all =
            arguments(std::string(command) + " --model {} --max-new 2 --quiet --json --prompts {}", path,
                      file("{\"prompt\": \"a\"}\n")) +
            no;
        if (command[0] == 'r') all.insert(all.end(), {"--out", folder_.file("recording")});
        const ProcessResult done = run(folder_, all);
        EXPECT_EQ(done.exit_code, 0) << done.err;
    }
    const json info = json::parse(read_text(folder_.file("recording") + "/trace.json"));
    EXPECT_EQ(info["template"], json::array({"enable_thinking=false"}));
    EXPECT_EQ(info["prompts"][0]["prompt_tokens"], prompt_tokens(off)[0]);
}

TEST_F(Prompts, ADateIsSaid) {
    const std::string path = model("{{ strftime_now('%Y-%m-%d') }}" + std::string(chatml));
    EXPECT_TRUE(has(notes(decode(path, {"--prompt", "a"})), "26 July 2024"));
    const std::string capture = folder_.file("date.dscope");
    EXPECT_EQ(notes(decode(path, {"--prompt", "a", "--template", "date=today", "--save", capture})), "");
    EXPECT_EQ(Sql(capture).text("SELECT substr(json_extract(config_json, '$.template'), 1, 7) FROM run"),
              "date=20");
}

TEST_F(Prompts, UnusablePromptsAreSkipped) {
    const std::string path = model(chatml);
    std::string words;
    for (int i = 0; i < 400; ++i) words += "w ";
    const std::string prompts =
        file("{\"id\": \"ok\", \"prompt\": \"a\"}\n{\"id\": \"long\", \"prompt\": \"" + words +
             "\"}\n{\"prompt\": 3}\n{\"id\": \"ok2\", \"prompt\": \"b\"}\n");
    const std::string capture = folder_.file("skipped.dscope");
    const ProcessResult done = decode(path, {"--prompts", prompts, "--save", capture, "--batch", "2"});
    EXPECT_EQ(prompt_tokens(done).size(), 2u);
    EXPECT_EQ(parse_output(done)["planned_prompts"], 2);
    EXPECT_TRUE(has(notes(done), "1 of 4 prompts is skipped; line 3: prompt is not a string")) << notes(done);
    EXPECT_TRUE(has(notes(done), "1 of 3 prompts is skipped; prompt long: ")) << notes(done);
    EXPECT_EQ(Sql(capture).number("SELECT count(*) FROM note WHERE round_id IS NULL"), 2);
    const json again =
        parse_output(decode(path, {"--prompts", prompts, "--save", capture, "--batch", "2", "--resume"}));
    EXPECT_EQ(again["resumed"], 2);
    expect_one_line_error(decode(path, {"--prompts", prompts, "--limit", "1", "--shard", "2/2"}),
                          {"--shard"});

    const ProcessResult bench =
        run(folder_,
            arguments("bench --model {} --prompts {} --method ngram --block 1 --max-new 4 --quiet --json",
                      path, prompts));
    EXPECT_EQ(parse_output(bench)["finished_conversations"], 2) << bench.out;
    EXPECT_TRUE(has(bench.err, "prompt long: ")) << bench.err;

    const ProcessResult none = decode(path, {"--prompts", file("{\"prompt\": \"" + words + "\"}\n")});
    expect_one_line_error(none, {"prompt 0: ", "leave no room in the model's context of 256"});
}

/// The shards of a job skip what is theirs, and are complete together.
TEST_F(Prompts, ShardsWithSkippedPromptsArePooled) {
    const std::string path = model(chatml);
    std::string words, lines;
    for (int i = 0; i < 400; ++i) words += "w ";
    for (int i = 0; i < 6; ++i)
        lines += json{{"prompt", i == 2 ? words : "p" + std::to_string(i)}}.dump() + "\n";
    const std::string prompts = file(lines);
    Arguments captures = {"merge", "--pool", folder_.file("pooled.dscope")};
    Arguments recordings = {"merge", "--pool", folder_.file("pooled")};
    for (const char* shard : {"1", "2"}) {
        const Arguments more = {"--prompts", prompts, "--shard", std::string(shard) + "/2"};
        captures.push_back(folder_.file("part" + std::string(shard) + ".dscope"));
        EXPECT_EQ(decode(path, more + Arguments{"--save", folder_.file("part%i.dscope")}).exit_code, 0);
        recordings.push_back(folder_.file("part" + std::string(shard)));
        const ProcessResult done =
            run(folder_, arguments("record --no-times --model {} --max-new 2 --quiet --out {}", path,
                                   folder_.file("part%i")) +
                             more);
        EXPECT_EQ(done.exit_code, 0) << done.err;
    }
    for (const Arguments& pool : {captures, recordings}) {
        const ProcessResult done = run(folder_, pool);
        EXPECT_EQ(done.exit_code, 0) << done.err;
    }
    EXPECT_EQ(Sql(folder_.file("pooled.dscope")).number("SELECT count(*) FROM prompt"), 5);
    const json info = json::parse(read_text(folder_.file("pooled") + "/trace.json"));
    EXPECT_EQ(info["prompts"].size(), 5u);
    EXPECT_EQ(info["skipped"], 1);
}

TEST_F(Prompts, EarlierTurnsAreOfThePrompt) {
    const std::string path = model(chatml);
    const std::string rendered =
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n1<|im_end|>"
        "\n"
        "<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n";
    const std::string messages =
        R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "one"}, )"
        R"({"role": "assistant", "content": "1"}, {"role": "user", "content": "two"}]})";
    const auto right = prompt_tokens(decode(path, {"--raw", "--prompt", rendered}));
    EXPECT_EQ(prompt_tokens(decode(path, {"--prompts", file(messages)})), right);
    expect_one_line_error(decode(path, {"--raw", "--prompts", file(messages)}), {"only a chat template"});
}

TEST_F(Prompts, StandardInput) {
    const std::string path = model(chatml), prompts = file("{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n");
    const int saved = dup(STDIN_FILENO);
    for (const char* command : {"run --drafter none", "bench --method ngram"}) {
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        const std::string text = read_text(prompts);
        ASSERT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
        close(ends[1]);
        dup2(ends[0], STDIN_FILENO);
        close(ends[0]);
        const ProcessResult done =
            run(folder_,
                arguments(std::string(command) + " --model {} --prompts - --max-new 2 --quiet --json", path));
        EXPECT_EQ(done.exit_code, 0) << done.err;
    }
    dup2(saved, STDIN_FILENO);
    close(saved);
}

TEST_F(Prompts, NumbersAreFinite) {
    const std::string path = model(chatml);
    for (const char* value : {"nan", "inf", "-inf", "1e999"})
        for (const char* option : {"--temperature", "--top-p"})
            expect_one_line_error(decode(path, {"--prompt", "a", std::string(option) + "=" + value}),
                                  {option, value, "must be a finite number"});
}

}  // namespace
}  // namespace draftscope::testing
