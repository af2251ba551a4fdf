#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <vector>

#include "app/cli/cli.h"
#include "app/cli/decoding_options.h"
#include "app/cli/kernels_cuda.h"
#include "app/cli/options.h"
#include "app/cli/tables.h"
#include "app/jobs/kernels/kernels_job.h"
#include "base/fields.h"

namespace draftscope::cli {
namespace {

struct KernelsArguments {
    KernelSettings settings;
    std::string backend = "cpu";
    std::string torch;
    bool json = false;
    bool csv = false;
};

void print_json(const KernelReport& report) {
    nlohmann::json document = write_fields(
        join(DS_FIELDS(KernelReport, isa, threads, notes),
             as(list_of(join(
                    DS_FIELDS(KernelTime, op, precision, rows, calls, median_us, best_us, bytes, gb_per_s),
                    field("scattered_probe_gb_per_s", &KernelTime::scattered_probe),
                    field("share_of_probe", [&](const KernelTime& m) { return report.share(m); }))),
                DS_FIELDS(KernelReport, ops))),
        report);
    document.update(write_fields(DS_FIELDS(KernelSettings, vocab, hidden), report.settings));
    document["probe_gb_per_s"] = {report.probe_before, report.probe_after};
    print_document(document);
}

void print_csv(const KernelReport& report) {
    print(
        "op,precision,rows,calls,median_us,best_us,bytes,gb_per_s,share_of_probe,scattered_probe_gb_per_s\n");
    for (const KernelTime& m : report.ops)
        print("{},{},{},{},{:.3f},{:.3f},{:.0f},{:.3f},{:.4f},{:.3f}\n", m.op, m.precision, m.rows, m.calls,
              m.median_us, m.best_us, m.bytes, m.gb_per_s(), report.share(m), m.scattered_probe);
    for (const std::string& note : report.notes) fmt::print(stderr, "note: {}\n", note);
}

void print_table(const KernelReport& report) {
    print("V {}, d {}, {} threads, kernels {}; reads {:.1f} GB/s before, {:.1f} GB/s after\n\n",
          report.settings.vocab, report.settings.hidden, report.threads, report.isa, report.probe_before,
          report.probe_after);
    std::vector<std::vector<std::string>> rows;
    for (const KernelTime& m : report.ops)
        rows.push_back({m.op, m.precision, m.rows > 0 ? std::to_string(m.rows) : "-",
                        fmt::format("{:.1f}", m.median_us), fmt::format("{:.1f}", m.best_us),
                        fmt::format("{:.2f}", m.bytes / 1e6), fmt::format("{:.1f}", m.gb_per_s()),
                        m.scattered_probe > 0 ? fmt::format("{:.1f}", m.scattered_probe) : "-",
                        fmt::format("{:.0f} %", 100 * report.share(m))});
    print("{}", format_table({"op", "precision", "rows", "median us", "best us", "MB", "GB/s",
                              "scattered GB/s", "of probe"},
                             rows));
    for (const std::string& note : report.notes) print("note: {}\n", note);
}

int do_on_cuda(KernelSettings settings, const KernelsArguments& options) {
    for (const int value : {settings.vocab, settings.hidden, settings.k})
        if (value < 1) return report(bad_input("kernels: sizes must be at least 1, found {}", value));
    for (const auto& [name, values] :
         {std::pair{"--rows", settings.rows}, std::pair{"--rank", settings.ranks},
          std::pair{"--gather", settings.gather}})
        for (const int value : values)
            if (value < 1) return report(bad_input("{} {}: must be at least 1", name, value));
    std::vector<std::string> notes = fit_kernel_sizes(settings);
    kernels::DeviceBenchOptions device;
    device.vocab = settings.vocab;
    device.hidden = settings.hidden;
    device.rank = settings.ranks;
    device.trimmed = std::max(1, settings.vocab / 4);
    device.gather = settings.gather;
    device.k = settings.k;
    device.rows = settings.rows;
    if (settings.vocab > kernels::max_router_columns)
        return report(
            bad_input("--vocab {}: on a GPU at most {}", settings.vocab, kernels::max_router_columns));
    if (!kernels::can_topk(settings.vocab, settings.k))
        return report(bad_input("--k {}: on a GPU at most {}", settings.k, kernels::max_topk));
    const TableForm form = options.json ? TableForm::json : options.csv ? TableForm::csv : TableForm::text;
    return do_kernels_cuda(device, std::move(notes), form, options.torch);
}

int do_kernels(const KernelsArguments& options) {
    if (options.backend == "cuda") return do_on_cuda(options.settings, options);
    if (!options.torch.empty())
        return report(bad_input("--torch {}: PyTorch is timed only with --backend cuda", options.torch));
    if (options.backend != "cpu")
        return report(bad_input("--backend {}: unknown; known are cpu, cuda", options.backend));
    const auto measured = measure_kernels(options.settings);
    if (!measured.ok()) return report(measured.error());
    if (options.json) {
        print_json(*measured);
    } else if (options.csv) {
        print_csv(*measured);
    } else {
        print_table(*measured);
    }
    return 0;
}

}  // namespace

void add_kernels(CLI::App& program, Action& action) {
    auto options = std::make_shared<KernelsArguments>();
    CLI::App* command = program.add_subcommand(
        "kernels",
        "Time the head, gather, layer and selection kernels at any size, relative to the memory bandwidth");
    command->footer(
        "Example: draftscope kernels --vocab 128256 --hidden 4096 --rows 1,8 --precision int8 --csv");
    add_shown(*command, "--vocab,--v", options->settings.vocab, "rows V of the head (also --v)");
    add_shown(*command, "--hidden,--d", options->settings.hidden, "columns d of the head (also --d)");
    command
        ->add_option("--rank", options->settings.ranks,
                     "ranks of the low-rank heads, a list (default: d / 8)")
        ->delimiter(',');
    add_shown(*command, "--gather", options->settings.gather,
              "rows of the gathered heads and of the router's shortlists, a list")
        ->delimiter(',');
    add_shown(*command, "--k", options->settings.k, "candidates of the top-k");
    add_shown(*command, "--rows,--m", options->settings.rows, "activation rows M per call, a list (also --m)")
        ->delimiter(',');
    add_shown(*command, "--precision", options->settings.precisions, "f32, bf16, int8, int4, a list")
        ->delimiter(',');
    add_shown(*command, "--backend", options->backend, "cpu or cuda; cuda computes in bf16");
    command->add_option("--torch", options->torch,
                        "a Python with PyTorch, timed on the same work for comparison (cuda)");
    add_threads_option(*command, options->settings.threads);
    add_shown(*command, "--seconds", options->settings.seconds, "seconds spent on each op");
    auto* json = command->add_flag("--json", options->json, "print one JSON document on stdout");
    command->add_flag("--csv", options->csv, "print comma-separated rows")->excludes(json);
    command->callback([options, &action] { action = [options] { return do_kernels(*options); }; });
}

}  // namespace draftscope::cli
