# SPDX-License-Identifier: Apache-2.0
"""What the architecture test holds the tree to. A new edge, owner or exception is a reviewed line here.

Paths are relative to the repository; a pattern is matched with fnmatch, where * also crosses /.
"""

# Folder of each module, lowest layer first.
MODULES = {
    "core": "src/core",
    "config": "src/config",
    "text": "src/text",
    "data": "src/data",
    "kernels": "kernels",
    "quant": "src/quant",
    "transport": "src/transport",
    "inner": "src/inner",
    "outer": "src/outer",
    "sim": "src/sim",
    "record": "src/record",
    "session": "src/session",
    "plan": "src/plan",
    "report": "src/report",
    "c": "src/c",
    "app": "src/app",
}

# Modules each one may include; inner, outer and sim do not see one another, session and record see no model code.
_LOW = ["core", "kernels", "quant", "transport"]
_SESSION = _LOW + ["config", "data", "outer", "sim", "record"]
_HIGH = _SESSION + ["text", "inner", "session", "plan", "report"]
MAY_INCLUDE = {
    "core": [],
    "config": ["core"],
    "text": ["core"],
    "data": ["core", "text"],
    "kernels": ["core"],
    "quant": ["core", "kernels"],
    "transport": ["core", "kernels", "quant"],
    "inner": _LOW + ["config", "data", "text"],
    "outer": _LOW,
    "sim": _LOW + ["config"],
    "record": _LOW + ["config"],
    "session": _SESSION,
    "plan": _LOW + ["config", "inner", "outer", "sim", "record"],
    "report": ["core", "record"],
    "c": ["core", "config", "data", "quant", "transport", "outer", "session"],
    "app": _HIGH + ["app_messages"],
    "app_messages": _LOW + ["record"],  # a library of files of app
}

# Folders of one module, lowest first, and which of them each may include; the others it may not. Without circles.
ROOMS = {
    "kernels/cpu": ["kernels"],
    "kernels/cuda": ["kernels"],
    "kernels/cuda/cudnn": ["kernels", "kernels/cuda"],
    "src/app/observe": ["src/app/common"],
    "src/app/train": ["src/app/common", "src/app/observe"],
    "src/app/inference": ["src/app/common", "src/app/train"],
    "src/app/commands/bench": ["src/app/common", "src/app/train"],
    "src/app/compare": ["src/app/common", "src/app/observe", "src/app/train"],
    "src/app/commands": ["src/app/common", "src/app/observe", "src/app/train", "src/app/inference",
                         "src/app/commands/bench", "src/app/compare"],
    "src/app/commands/plan": ["src/app/common", "src/app/train", "src/app/commands/bench"],
    "src/app/flags": ["src/app/common", "src/app/commands/bench", "src/app/commands", "src/app/commands/plan"],
    "src/app": ["src/app/flags"],
    "src/config/load": ["src/config/schema"],
    "src/config/check": ["src/config/schema", "src/config/load"],
    "src/config": ["src/config/schema", "src/config/load", "src/config/check"],
    "src/core/state": ["src/core/base"],
    "src/data/tokenize": ["src/data"],
    "src/inner/mesh": ["src/inner/model"],
    "src/inner/loop": ["src/inner/model", "src/inner/mesh"],
    "src/inner/cuda": ["src/inner/model", "src/inner/mesh", "src/inner/loop"],
    "src/inner/hf": ["src/inner/model"],
    "src/outer/place": ["src/outer/parts"],
    "src/outer/methods": ["src/outer/parts", "src/outer/place"],
    "src/quant/cpu": ["src/quant/math"],
    "src/quant/codecs": ["src/quant/math", "src/quant/cpu"],
    "src/quant/cuda": ["src/quant/math", "src/quant/codecs"],
    "src/report/page": ["src/report/data"],
    "src/report/export": ["src/report/data", "src/report/page"],
    "src/text/jinja": ["src/text"],
    "src/text/chat": ["src/text", "src/text/jinja"],
    "src/session/site": ["src/session/run"],
    "src/session/checks": ["src/session/run"],
    "src/session": ["src/session/run", "src/session/checks", "src/session/site"],
    "src/session/hub": ["src/session/run", "src/session/site"],
    "src/transport/links": ["src/transport/links/tcp", "src/transport/wire"],
    "src/transport/collectives": ["src/transport/wire", "src/transport/links"],
    "src/transport/exchange": ["src/transport/wire", "src/transport/exchange/merges"],
    "src/transport/exchange/merges": [],
    "src/transport/exchange/catch_up": ["src/transport/wire", "src/transport/links", "src/transport/exchange"],
    "src/transport/exchange/ring": ["src/transport/wire", "src/transport/exchange"],
    "src/transport/links/probe": ["src/transport/wire", "src/transport/links"],
    "src/transport/links/relay": ["src/transport/links/tcp", "src/transport/wire", "src/transport/links"],
    "src/transport/links/zmq": ["src/transport/links/tcp", "src/transport/wire", "src/transport/links",
                                "src/transport/links/relay"],
}

# Product code that includes a header below tests/, in a build of tests alone.
TEST_SEAMS = {
    "kernels/cuda/simt.h": ["cuda/emulated/simt.h"],  # kernels as C++ for the emulated device
}

# Public headers that only some modules may include; the others are open to all.
PUBLIC_HEADERS = {
    "isthmus/outer.h": ["config", "outer", "record", "session", "plan", "report", "c", "app"],  # config: its options
    "isthmus/session.h": ["session", "c", "app"],
}

# Third-party and system headers beyond the C++ library: who may include them.
OWNERS = {
    "fmt/*": ["*"],
    "stddef.h": ["include/isthmus/c.h"],
    "stdint.h": ["include/isthmus/c.h"],
    "tl/expected.hpp": ["include/isthmus/expected.h"],
    "nlohmann/*": ["src/*.cpp", "src/core/base/json_input.h", "src/inner/hf/hf_config_reader.h", "src/text/tokenizer_json.h", "src/record/json_values.h", "src/record/json_fields.h", "tests/*",
                   "fuzz/checkpoint_fuzz.cpp"],
    "toml++/*": ["src/config/*.cpp", "src/c/c_tables.cpp"],
    "CLI/*": ["src/app/flags/*", "bench/*"],
    "boost/math/*": ["src/report/data/statistics.cpp"],
    "spdlog/*": ["src/core/base/log.cpp"],
    "Random123/*": ["src/core/base/rng.cpp"],
    "xxhash.h": ["src/core/base/hash_xxh3.h"],
    "xxh_x86dispatch.h": ["src/core/base/hash_xxh3_wide.cpp"],
    "sodium.h": ["src/core/base/hash.cpp", "src/core/base/fresh_id.cpp", "src/transport/links/link_keys.cpp"],
    "zmq.hpp": ["src/transport/links/zmq/*", "tests/transport/zmq_batch_test.cpp"],
    "mpi.h": ["src/transport/links/mpi_transport.cpp", "src/transport/collectives/mpi_group.h", "src/transport/wire/mpi_calls.h",
              "src/transport/collectives/mpi_communicator.cpp", "bench/transport/mpi_member.cpp"],
    "prometheus/*": ["src/app/observe/metric_families.cpp"],
    "zlib.h": ["src/data/inflater.cpp"],
    "zstd.h": ["src/data/inflater.cpp", "src/quant/codecs/lossless.cpp"],
    "zstd_errors.h": ["src/data/inflater.cpp"],
    "gtest/*": ["tests/*"],
    "gmock/*": ["tests/*"],
    "benchmark/*": ["bench/*"],
    "cpuid.h": ["kernels/isa.cpp"],
    "immintrin.h": ["*_avx2*", "*_avx512*", "kernels/thread_team.cpp", "src/core/base/hash_crc32c_sse42.cpp"],
    "math.h": ["kernels/cpu/*_fast.h"],  # compiled per instruction set: no inline std:: functions
    "cuda_runtime.h": ["kernels/cuda/simt_device.h", "kernels/cuda/runtime.cpp", "kernels/cuda/runtime_check.h",
                       "tests/cuda/fake_cuda_runtime.cpp"],
    "cublasLt.h": ["kernels/cuda/cublas_calls.h"],
    "ucontext.h": ["tests/cuda/emulated/fiber_ucontext.cpp"],
    "cuda_runtime_api.h": ["kernels/cuda/cudnn/cudnn_attention.cpp", "kernels/cuda/cudnn/cudnn_library.cpp",
                           "src/transport/collectives/nccl_calls.h"],
    "cudnn_frontend.h": ["kernels/cuda/cudnn/cudnn_attention.cpp"],
    "cudnn_version.h": ["kernels/cuda/cudnn/cudnn_library.cpp"],
    "nccl.h": ["src/transport/collectives/nccl_calls.h"],
    "dlfcn.h": ["kernels/cuda/cublas_calls.cpp", "kernels/cuda/cudnn/cudnn_library.cpp",
                "src/transport/collectives/nccl_calls.cpp"],
    "oneapi/dnnl/*": ["kernels/cpu/gemm_onednn.cpp"],
    "omp.h": ["kernels/cpu/gemm_onednn.cpp"],
    # The operating system: storage, memory, threads, terminal and signals.
    "fcntl.h": ["src/transport/collectives/shared_segment.cpp", "src/app/common/child_process.cpp", "src/core/base/lock_file.cpp", "src/core/base/storage_system.cpp", "src/core/state/*.cpp", "tests/*",
                "src/sim/tun_device.cpp"],
    "dirent.h": ["src/core/base/storage_system.cpp"],
    "sys/file.h": ["src/core/base/lock_file.cpp", "src/core/base/storage_system.cpp"],
    "sys/statfs.h": ["src/core/base/lock_file.cpp"],
    "sys/stat.h": ["src/transport/collectives/shared_segment.cpp", "src/core/base/lock_file.cpp", "src/core/base/storage_system.cpp", "src/core/state/state_memory.cpp", "tests/*"],
    "sys/mman.h": ["bench/transport/bench_passes.cpp", "src/transport/collectives/shared_segment.cpp", "src/core/base/storage_system.cpp", "src/core/state/*.cpp", "kernels/aligned_buffer.cpp", "tests/core/own_pages_test.cpp", "tests/core/state_memory_test.cpp"],
    "fnmatch.h": ["src/core/base/storage.cpp"],
    "unistd.h": ["kernels/isa.cpp", "src/transport/collectives/shared_segment.cpp", "src/core/base/mapped_files.cpp", "src/core/base/lock_file.cpp", "src/core/base/storage_system.cpp", "src/core/state/*.cpp",
                 "src/app/*", "src/session/site/link_rendezvous.cpp",
                 "src/transport/links/tcp/tcp_socket.cpp", "tests/*", "bench/transport/*", "src/sim/tun_device.h", "src/sim/wan.cpp"],
    "stdlib.h": ["src/transport/links/mpi_transport.cpp", "tests/*"],  # what it tells Open MPI
    "malloc.h": ["src/core/base/freed_memory.h", "tests/transport/zmq_exchange_test.cpp"],
    "signal.h": ["src/core/base/mapped_files.cpp", "src/core/base/lock_file.cpp", "src/app/common/signals.*", "src/app/common/child_process.cpp",
                 "tests/transport/zmq_faults_test.cpp", "tests/transport/zmq_returning_test.cpp",
                 "bench/transport/wan.cpp"],
    "poll.h": ["src/app/common/child_process.cpp", "src/session/site/link_rendezvous.cpp", "src/transport/links/tcp/tcp_socket.cpp", "src/sim/wan.cpp"],
    "netdb.h": ["src/session/site/link_rendezvous.cpp", "src/transport/links/tcp/tcp_socket.cpp"],
    "netinet/tcp.h": ["bench/transport/bench_passes.cpp"],
    "netinet/in.h": ["bench/transport/bench_passes.cpp", "src/transport/links/tcp/tcp_socket.cpp", "src/transport/links/tcp/tcp_connection.cpp",
                     "src/transport/links/zmq/tcp_counters_linux.cpp"],
    "sys/socket.h": ["bench/transport/bench_passes.cpp", "src/app/common/free_ports.cpp", "src/session/site/link_rendezvous.cpp", "src/transport/links/tcp/tcp_socket.cpp",
                     "src/transport/links/tcp/tcp_connection.cpp", "src/transport/links/zmq/tcp_counters_linux.cpp",
                     "src/transport/links/zmq/zmq_sockets.cpp", "tests/transport/raw_peer.h", "tests/transport/tcp_connection_test.cpp",
                     "src/sim/tun_device.cpp"],
    "linux/tcp.h": ["src/transport/links/tcp/tcp_connection.cpp", "src/transport/links/zmq/tcp_counters_linux.cpp",
                    "tests/transport/tcp_connection_test.cpp"],
    "linux/sockios.h": ["tests/transport/tcp_connection_test.cpp"],
    "arpa/inet.h": ["src/app/common/free_ports.cpp", "tests/transport/raw_peer.h",
                    "tests/transport/tcp_connection_test.cpp", "src/sim/tun_device.cpp"],
    # Network namespaces and TUN devices of the shaped links.
    "linux/if_tun.h": ["src/sim/tun_device.cpp"],
    "net/if.h": ["src/sim/tun_device.cpp"],
    "sys/ioctl.h": ["src/app/*", "tests/transport/tcp_connection_test.cpp", "src/sim/tun_device.cpp"],
    "sys/prctl.h": ["src/app/*", "src/sim/wan.cpp"],
    "sys/wait.h": ["src/app/common/child_process.cpp", "tests/transport/zmq_faults_test.cpp",
                   "tests/transport/zmq_flood_test.cpp", "tests/transport/zmq_returning_test.cpp", "bench/transport/*"],
    "sys/resource.h": ["bench/transport/*", "src/app/commands/bench/*", "src/app/train/offload.cpp", "src/core/base/open_files.h", "src/transport/links/relay/link_allowance.cpp",
                       "tests/core/state_memory_test.cpp", "tests/transport/zmq_flood_test.cpp", "tests/transport/zmq_limits_test.cpp"],
    "sys/eventfd.h": ["src/transport/links/tcp/tcp_socket.cpp"],
    "sys/statvfs.h": ["src/transport/collectives/shared_segment.cpp"],
    "sys/utsname.h": ["src/record/machine_info.cpp"],
    "sys/syscall.h": ["kernels/isa.cpp", "src/app/*"],
    "sys/random.h": ["src/record/wall_clock.cpp"],
    "sys/*": ["src/app/*"],
    "sched.h": ["kernels/thread_team.cpp", "src/app/common/child_process.cpp", "src/sim/wan.cpp", "src/sim/tun_device.cpp"],
    "pthread.h": ["kernels/thread_team.cpp"],
}

# The seam: real time, threads, environment and chance live in these files.
# The pager moves pages of mapped files, which no virtual time knows of.
_SEAM = ["src/core/base/system_runtime.*", "src/core/state/state_pager.*", "src/sim/scheduler.*", "kernels/thread_team.*"]
BANNED = [
    # pattern, files that may, remedy
    (r"\b(steady_clock|system_clock|high_resolution_clock)\b",
     _SEAM + ["src/record/wall_clock.*", "tests/*", "bench/*"], "take a Clock (isthmus/runtime.h)"),
    (r"\b(sleep_for|sleep_until\s*\(\s*std|usleep|nanosleep)\b", _SEAM,
     "wait on a WaitQueue, or Runtime::sleep_until"),
    (r"\bstd::(thread\b(?!::hardware_concurrency)|jthread\b|async\b)", _SEAM + ["tests/*", "bench/*"],
     "Runtime::spawn, or kernels/thread_team.h inside an operation"),
    (r"\b(std::)?(srand|rand|rand_r|drand48)\s*\(", [], "core/base/rng.h"),
    (r"\bstd::(random_device|mt19937(_64)?|default_random_engine)\b", [], "core/base/rng.h"),
    # A test learns its weight, which communicator is tested and where old libraries are from the environment of its
    # ctest entry, and the emulated device which faults it has.
    (r"\b(secure_)?getenv\s*\(", ["src/app/*", "tests/test_weight.h", "tests/transport/communicator_tested.cpp",
                                  "tests/cuda/device_libraries_test.cpp", "tests/cuda/emulated/faults.cpp"],
     "hand the value in"),
]
# Iteration order would reach bytes and sums.
UNORDERED_IN = ["src/transport/*", "src/outer/*", "src/sim/*", "src/quant/*"]

# Files that may hold preprocessor conditions; variants are files that CMake chooses.
MAY_HAVE_IF = [
    "include/isthmus/c.h",  # for C and C++
    "kernels/host_device.h",
    "kernels/cuda/simt.h",  # nvcc, or the emulated device
    "kernels/isa.cpp",  # __builtin_cpu_supports names x86 features only on x86
    "kernels/thread_team.cpp",  # pause instruction of the spin loop
]

# Sizes: a file or a class beyond them holds more than one idea. Structs may have any number of fields.
MAX_LINES = 800
LONG_FILES = ["src/config/schema/config_schema_keys.cpp"]  # tables
MAX_FILES = 60  # of a folder, its README and CMakeLists.txt included
MAX_METHODS = 40
MAX_MEMBERS = 20
BIG_CLASSES = [
    "Avx2", "Avx512",  # the vocabulary of an instruction set, a line a function
    "CudaLoop",
]

SPDX = "SPDX-License-Identifier: Apache-2.0"
