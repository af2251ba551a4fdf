#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/cli/cli.h"
#include "app/cli/tables.h"
#include "app/jobs/machine/capabilities.h"
#include "app/jobs/profile/other_load.h"
#include "app/jobs/resolve/assets.h"
#include "app/jobs/run/run_job.h"

namespace draftscope::cli {
namespace {

struct DoctorArguments {
    bool json = false;
    bool probe = true;
    int threads = 0;  ///< further number of threads to probe
};

constexpr double quiet_cpus = 0.15;  ///< CPUs of other programs that do not matter; our default

/// Prints a line for each capability. What needs an NVIDIA driver is one line without it.
void print_capabilities(const std::vector<Capability>& capabilities) {
    const bool driver = capabilities.front().available;
    for (const Capability& one : capabilities) {
        if (!driver && (one.name == "CUDA" || one.name == "CUPTI")) continue;
        const bool is_missing_driver = !driver && &one == &capabilities.front();
        print("{:<10} {}: {}{}{}{}\n", one.available ? "yes" : "no", one.name, one.state,
              is_missing_driver ? ", so no CUDA and CUPTI" : "", one.remedy.empty() ? "" : "; ", one.remedy);
    }
}

int do_doctor(const DoctorArguments& options) {
    Machine machine = describe_capabilities(true);
    const OtherLoad load;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const double others = load.cpus();
    if (options.probe) {
        // Runs use all cores by default; phases report their bandwidth relative to these probes.
        ProbedBandwidth measured;
        for (const int threads : {1, machine.cores, options.threads})
            if (threads > 0 && !measured.contains(threads))
                measured[threads] = {
                    probe_read_bandwidth(threads, memory_probe_megabytes()),
                    probe_scattered_bandwidth(threads, memory_probe_megabytes(), scattered_probe_row_bytes)};
        machine.read_gb_per_s = measured[machine.cores].stream;
        machine.cached_read_gb_per_s =
            probe_read_bandwidth(machine.cores, machine.cores * cached_probe_megabytes);
        machine.scattered_read_gb_per_s = measured[machine.cores].scattered;
        save_probe(machine.cpu_name, measured);
    }
    const std::string model = find_demo_model();
    if (options.json) {
        auto document = nlohmann::json::parse(to_json(machine));
        document["other_load_cpus"] = others;
        document["demo_model"] = model.empty() ? nlohmann::json(nullptr) : nlohmann::json(model);
        document["packed_weights"] = nlohmann::json::array();
        for (const PackedWeightsFile& file : list_packed_weights())
            document["packed_weights"].push_back({{"file", file.path}, {"bytes", file.bytes}});
        print_document(document);
        return 0;
    }
    print("CPU        {}, {} cores, kernels: {}\n", machine.cpu_name, machine.cores, machine.isa);
    print("memory     {:.1f} GiB", static_cast<double>(machine.memory_bytes) / (1024.0 * 1024.0 * 1024.0));
    if (machine.read_gb_per_s > 0)
        print(", reads {:.1f} GB/s on {} threads ({} MiB, past the caches; {:.1f} GB/s from {} MiB in cache)",
              machine.read_gb_per_s, machine.cores, memory_probe_megabytes(), machine.cached_read_gb_per_s,
              machine.cores * cached_probe_megabytes);
    if (machine.scattered_read_gb_per_s > 0)
        print("\n           scattered rows of {} bytes, past the caches: {:.1f} GB/s on {} threads",
              scattered_probe_row_bytes, machine.scattered_read_gb_per_s, machine.cores);
    print("\nsystem     {}, kernel {}\n", machine.os, machine.kernel);
    print("clock      {}\n", machine.tsc_invariant ? "invariant TSC" : "CLOCK_MONOTONIC (no invariant TSC)");
    print("demo model {}\n", model.empty() ? "not found: run " + model_fetcher() + " model" : model);
    for (const PackedWeightsFile& file : list_packed_weights())
        print("packed     {}, {:.2f} GB\n", file.path, static_cast<double>(file.bytes) / 1e9);
    print("load       other programs use {:.1f} of {} cores: {}\n", others, machine.cores,
          others < quiet_cpus ? "quiet" : "this machine is loaded now, and speeds measured now are too low");
    print_capabilities(machine.capabilities);
    return 0;
}

}  // namespace

void add_doctor(CLI::App& program, Action& action) {
    auto options = std::make_shared<DoctorArguments>();
    CLI::App* command =
        program.add_subcommand("doctor", "Show this machine's hardware and measurement capabilities");
    command->footer("Example: draftscope doctor --json");
    command->add_flag("--json", options->json, "print one JSON document on stdout");
    command
        ->add_option("--threads", options->threads, "also probe this many threads, for runs with --threads")
        ->check(CLI::Range(1, 1024));
    command->add_flag("!--no-probe", options->probe, "skip the bandwidth probe");
    command->callback([options, &action] { action = [options] { return do_doctor(*options); }; });
}

}  // namespace draftscope::cli
