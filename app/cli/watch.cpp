#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>

#include "app/cli/cli.h"
#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/jobs/resolve/vocabulary.h"
#include "app/jobs/watch/watch_job.h"
#include "base/fields.h"
#include "base/format_count.h"
#include "storage/capture_file.h"

namespace draftscope::cli {
namespace {

struct WatchArguments {
    WatchConfig config;
    RunConfig prompts;
    std::string out, header_file, model, ranking;
    bool overwrite = false;
    JobOutput output;
};

/// Reads a header a line. The file's lines are secrets: no message shows them.
Status read_headers(WatchArguments& arguments) {
    if (arguments.header_file.empty()) return {};
    std::ifstream file(arguments.header_file);
    if (!file) return bad_input("--header-file {}: cannot be read", arguments.header_file);
    int number = 0;
    for (std::string line; std::getline(file, line);) {
        ++number;
        if (line.ends_with('\r')) line.pop_back();
        if (line.empty()) continue;
        const std::size_t colon = line.find(':');
        if (colon == 0 || colon == std::string::npos)
            return bad_input("--header-file {}: line {} is no \"Name: value\"", arguments.header_file,
                             number);
        arguments.config.headers.push_back(std::move(line));
    }
    return {};
}

nlohmann::json watch_json(const WatchReport& report, const WatchArguments& arguments) {
    nlohmann::json out =
        write_fields(DS_FIELDS(RoundsReport, runs, requests, rounds, refused, notes), report.rounds);
    out.update({{"engine", report.engine}, {"prompts", report.prompts}, {"file", arguments.out}});
    out["ended"] = report.ended.empty() ? nlohmann::json() : nlohmann::json(report.ended);
    return out;
}

void print_watch(const WatchReport& report, const WatchArguments& arguments) {
    say_notes(report.rounds.notes);
    std::fprintf(stderr, "wrote %s: %s of %s from %s\n", arguments.out.c_str(),
                 format_count(report.rounds.rounds, "round").c_str(),
                 format_count(report.prompts, "answer").c_str(), report.engine.c_str());
    if (!report.ended.empty()) std::fprintf(stderr, "draftscope: ended early: %s\n", report.ended.c_str());
}

Result<int> do_watch(WatchArguments& arguments) {
    WatchConfig& config = arguments.config;
    DS_TRY(read_headers(arguments));
    DS_TRY(load_vocabulary(arguments.model, arguments.ranking, 1, config.rounds));
    DS_ASSIGN(PromptSet prompts, read_prompts(arguments.prompts));
    config.conversations = std::move(prompts.conversations);
    const auto run = [&](const JobHooks& hooks, DebugGate&) -> Result<WatchReport> {
        DS_ASSIGN(const auto writer, CaptureWriter::create(arguments.out, arguments.overwrite));
        Result<WatchReport> report = watch(config, *writer, hooks);
        const Status closed = writer->close();
        if (!report.ok()) writer->remove_file();
        if (report.ok() && !closed.ok()) return closed.error();
        if (report.ok()) append_notes(report->rounds.notes, prompts.notes);
        return report;
    };
    return run_job(
        arguments.output, run, [&](const WatchReport& report) { return watch_json(report, arguments); },
        [&](const WatchReport& report) { print_watch(report, arguments); },
        [](const WatchReport& report) { return report.ended.empty() ? 0 : 1; });
}

}  // namespace

void add_watch(CLI::App& program, Action& action) {
    auto options = std::make_shared<WatchArguments>();
    WatchConfig& config = options->config;
    CLI::App* command = program.add_subcommand(
        "watch", "Send prompts to a running server of another engine and capture its rounds as they come");
    command->footer(
        "Example: draftscope watch http://127.0.0.1:8080 --prompts assets/prompts/spec_bench_half.jsonl "
        "--limit 4 --out server.dscope");
    command->add_option("url", config.url, "address of the server, and of nothing else")->required();
    add_prompt_options(*command, options->prompts);
    command->add_option("--out,--save", options->out, "new capture file")->required();
    command->add_flag("--overwrite", options->overwrite, "replace an existing file");
    command->add_option("--engine", config.engine, "asked of the server unless given: " + known_servers());
    command->add_option("--served-model", config.model, "name that the server knows (default: its first)");
    command->add_option("--model", options->model,
                        "target: a GGUF file or model folder, for the texts of tokens");
    command->add_option("--ranking", options->ranking,
                        "token ranking: the Coverage panel and stats say what it covers of the text");
    add_shown(*command, "--max-new", config.max_new, "tokens to generate per prompt");
    add_shown(*command, "--temperature", config.temperature, "0 = greedy");
    add_shown(*command, "--seed", config.seed, "seed of the server's sampling");
    add_shown(*command, "--timeout", config.timeout_s,
              "seconds without a byte after which an answer is given up");
    command->add_option("--header-file", options->header_file,
                        "headers to send, one a line, such as \"Authorization: Bearer KEY\"; kept nowhere");
    command->add_option("--words", config.words, "also keep the server's words in this file, for import");
    add_output_options(*command, options->output);
    command->callback([options, &action] { action = [options] { return do_watch(*options); }; });
}

}  // namespace draftscope::cli
