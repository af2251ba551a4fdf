#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "app/gui/models/session.h"

namespace draftscope {
namespace {

TEST(WindowWords, OptionsBecomeTheLabelsOfFields) {
    EXPECT_EQ(to_window_words("decode more prompts, or run with --shadow full"),
              "decode more prompts, or run with shadow heads full");
    EXPECT_EQ(to_window_words("pass it with --head-weights rdk=FILE"), "pass it with head's file rdk=FILE");
    EXPECT_EQ(to_window_words("--tree quick: has no recorded acceptance; use --tree auto"),
              "tree \"fastest by forecast\": has no recorded acceptance; use tree \"fastest by measuring\"");
    EXPECT_EQ(to_window_words("--simulate-acceptance rate:2"), "simulate acceptance rate:2");
    EXPECT_EQ(to_window_words("give a file written by run --save"), "give a file written by \"Save a copy\"");
    EXPECT_EQ(to_window_words("nothing to decode: give --prompt TEXT or --prompts FILE.jsonl"),
              "nothing to decode: give a prompt or a prompt file");
    EXPECT_EQ(to_window_words("a -- b, 3--4 and --"), "a -- b, 3--4 and --");
}

TEST(WindowWords, CommandsStayWhole) {
    EXPECT_EQ(to_window_words("make one with draftscope fit rdk --out rdk.st; pass it with --head-weights"),
              "make one with draftscope fit rdk --out rdk.st; pass it with head's file");
    EXPECT_EQ(to_window_words("make one with draftscope fit rdk and pass it with --head-weights rdk=FILE"),
              "make one with draftscope fit rdk and pass it with head's file rdk=FILE");
    for (const char* foreign : {"convert it first: nsys export --type sqlite x.nsys-rep",
                                "in a container, add --cap-add=SYS_ADMIN", "hf download a/b --local-dir c"})
        EXPECT_EQ(to_window_words(foreign), foreign);
}

/// The window's own texts name no option and no command.
TEST(WindowWords, TheSourcesOfTheWindowHaveNoOptions) {
    namespace fs = std::filesystem;
    const std::regex option("\"[^\"]*(--[a-z]|draftscope [a-z])[^\"]*\"");
    // They read the command line, or speak to it.
    const std::set<std::string> of_the_command_line = {"entry.cpp", "plots.cpp", "window_display.cpp"};
    int files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(DS_SOURCE_DIR "/app/gui")) {
        const std::string name = entry.path().filename().string();
        if (!entry.is_regular_file() || of_the_command_line.contains(name)) continue;
        ++files;
        std::ifstream file(entry.path());
        int number = 0;
        for (std::string line; std::getline(file, line);) {
            ++number;
            const bool found = line.find("//") == std::string::npos && std::regex_search(line, option);
            EXPECT_FALSE(found) << entry.path() << ":" << number << ": " << line;
        }
    }
    EXPECT_GT(files, 60);
}

TEST(WhyNotToStart, NamesTheFirstField) {
    EXPECT_EQ(why_not_to_start({}), "");
    EXPECT_EQ(why_not_to_start(std::vector<Mistake>{{"", "the demo model is missing"}}), "")
        << "a run fetches it";
    EXPECT_EQ(why_not_to_start(std::vector<Mistake>{{"", "x"}, {"Tree", "topk=40 is outside 1..32"}}),
              "Tree: topk=40 is outside 1..32");
}

}  // namespace
}  // namespace draftscope
