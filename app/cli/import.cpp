#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>

#include "app/cli/cli.h"
#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/tables.h"
#include "app/jobs/resolve/vocabulary.h"
#include "base/fields.h"
#include "base/format_count.h"
#include "storage/capture_file.h"
#include "storage/import/import_rounds.h"

namespace draftscope::cli {
namespace {

struct ImportArguments {
    std::vector<std::string> files, header;
    std::string out, model, ranking;
    RoundsOptions options;
    bool overwrite = false, json = false;
};

/// Reads standard input as it grows, until its end or an interrupt.
Status read_stdin(RoundsImport& import) {
    DebugGate gate;
    const InterruptWatch watch(gate);
    import.begin("-");
    std::array<char, 1 << 16> bytes{};
    while (!gate.cancelled()) {
        pollfd input{STDIN_FILENO, POLLIN, 0};
        if (poll(&input, 1, 100) <= 0) continue;
        const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
        if (count <= 0) break;
        DS_TRY(import.read({bytes.data(), static_cast<std::size_t>(count)}));
    }
    return import.end();
}

Status parse_header(ImportArguments& arguments) {
    for (const std::string& one : arguments.header) {
        const std::size_t equals = one.find('=');
        if (equals == 0 || equals == std::string::npos)
            return bad_input("--header {}: expected KEY=VALUE, as drafter=none", one);
        arguments.options.header[one.substr(0, equals)] = one.substr(equals + 1);
    }
    return {};
}

Result<RoundsReport> import_files(const ImportArguments& arguments, CaptureWriter& writer) {
    const auto import = RoundsImport::create(arguments.options, writer);
    for (const std::string& file : arguments.files)
        DS_TRY(file == "-" ? read_stdin(*import) : read_rounds_files(*import, {file}));
    return import->finish();
}

Result<int> do_import(ImportArguments& arguments) {
    DS_TRY(check_rounds_format(arguments.options.format));
    DS_TRY(parse_header(arguments));
    DS_TRY(load_vocabulary(arguments.model, arguments.ranking, 1, arguments.options));
    DS_ASSIGN(const auto writer, CaptureWriter::create(arguments.out, arguments.overwrite));
    const Result<RoundsReport> report = import_files(arguments, *writer);
    const Status closed = writer->close();
    if (!report.ok()) {
        writer->remove_file();
        return report.error();
    }
    DS_TRY(closed);
    say_notes(report->notes);
    if (arguments.json) {
        nlohmann::json out =
            write_fields(DS_FIELDS(RoundsReport, runs, requests, rounds, refused, notes), *report);
        out["file"] = arguments.out;
        print_document(out);
        return 0;
    }
    std::fprintf(
        stderr, "wrote %s: %s of %s%s\n", arguments.out.c_str(),
        format_count(report->rounds, "round").c_str(), format_count(report->requests, "request").c_str(),
        report->refused == 0 ? ""
                             : fmt::format("; left out: {}", format_count(report->refused, "line")).c_str());
    return 0;
}

}  // namespace

void add_import(CLI::App& program, Action& action) {
    auto options = std::make_shared<ImportArguments>();
    CLI::App* command = program.add_subcommand(
        "import", "Make a capture of rounds that another engine decoded: its answers, streams or logs");
    command->footer(
        "Example: draftscope import answer.json --out vllm.dscope\n"
        "         draftscope import before.txt after.txt --out window.dscope   (two scrapes of /metrics)\n"
        "         llama-server ... -lv 99 2>&1 | draftscope import - --out live.dscope");
    command->add_option("files", options->files, "files of one or several formats; - reads standard input")
        ->required();
    command->add_option("--out,--save", options->out, "new capture file")->required();
    command->add_option("--format", options->options.format,
                        "by content unless given: " + known_rounds_formats());
    command->add_option("--header", options->header,
                        "KEY=VALUE that the files do not say, as target=NAME, drafter=NAME, k=3, "
                        "temperature=0, verification=match|pq|typical (repeatable)");
    command->add_option("--model", options->model,
                        "target: a GGUF file or model folder, for the texts of tokens");
    command->add_option("--ranking", options->ranking,
                        "token ranking: the Coverage panel and stats say what it covers of the text");
    command->add_flag("--overwrite", options->overwrite, "replace an existing file");
    command->add_flag("--json", options->json, "print one JSON document on stdout");
    command->callback([options, &action] { action = [options] { return do_import(*options); }; });
}

}  // namespace draftscope::cli
