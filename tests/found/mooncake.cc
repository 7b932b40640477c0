// SPDX-License-Identifier: BSD-2-Clause
// mooncake.cc - the way in which Mooncake finds its devices (topology.cpp, rdma_context.cpp), in C++. Prints what it found.
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

static bool is_accessible(const std::string &path)
{
	struct stat st;

	return stat(path.c_str(), &st) == 0 && S_ISCHR(st.st_mode) && access(path.c_str(), R_OK | W_OK) == 0;
}

int main(int argc, char **argv)
{
	const std::string device = argv[1], file = argv[2];
	char resolved[PATH_MAX];
	std::string line;
	int node = -7;

	std::cout << "accessible " << is_accessible("/dev/infiniband/" + file) << "\n";
	if (!realpath(("/sys/class/infiniband/" + device + "/../..").c_str(), resolved))
		return 1;
	std::cout << "card " << resolved << "\n";
	std::ifstream(std::string(resolved) + "/numa_node") >> node;
	std::cout << "node " << node << "\n";
	std::ifstream ndev("/sys/class/infiniband/" + device + "/ports/1/gid_attrs/ndevs/0");
	if (ndev >> line)
		std::cout << "ndev " << line << "\n";
	std::ifstream empty("/sys/class/infiniband/" + device + "/ports/1/gid_attrs/ndevs/15");
	std::cout << "empty " << !(empty >> line) << "\n";
	for (const auto &entry : std::filesystem::directory_iterator("/sys/class/infiniband"))
		std::cout << "device " << entry.path().filename().string() << "\n";
	std::cout << "directory " << std::filesystem::is_directory("/sys/class/infiniband/" + device + "/ports") << "\n";
}
