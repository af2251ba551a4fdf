#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/cli.h"
#include "app/cli/tables.h"
#include "app/jobs/resolve/published_drafters.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct DraftersArguments {
    std::string model;
    bool json = false;
};

Result<int> do_drafters(const DraftersArguments& options) {
    DS_ASSIGN(std::vector<PublishedDrafter> found, read_published_drafters());
    if (!options.model.empty()) found = drafters_for(options.model, found);
    if (options.json) {
        json rows = json::array();
        for (const PublishedDrafter& one : found) {
            json& row = rows.emplace_back(json{{"target", one.target},
                                               {"drafter", one.drafter},
                                               {"at", one.at},
                                               {"layout", one.layout},
                                               {"source", one.source}});
            row["billions"] = one.billions ? json(*one.billions) : json();
        }
        print_document({{"for", options.model}, {"drafters", rows}});
        return 0;
    }
    if (found.empty()) {
        print("none is known for {}. Without a checkpoint: --drafter suffix or ngram\n", options.model);
        return 0;
    }
    for (const PublishedDrafter& one : found)
        print("{:<36} {:<12} {:<66} {:<12} {}\n", one.target, one.drafter, one.at, one.layout,
              one.billions ? fmt::format("{:.2f} B", *one.billions) : "-");
    print("\nDownload one, then: draftscope run --model TARGET --drafter DRAFTER:FOLDER\n");
    return 0;
}

}  // namespace

void add_drafters(CLI::App& program, Action& action) {
    auto options = std::make_shared<DraftersArguments>();
    CLI::App* command = program.add_subcommand(
        "drafters", "List drafters that others have published, with layout, size and place");
    command->footer("Example: draftscope drafters --for Qwen3-8B-Q4_K_M.gguf");
    command->add_option("--for", options->model, "those for this target: a file, a folder or a name");
    command->add_flag("--json", options->json, "print one JSON document on stdout");
    command->callback([options, &action] { action = [options] { return do_drafters(*options); }; });
}

}  // namespace draftscope::cli
