# Segment attention on a GPU: a program that prints a table, and a library that
# tools/bench_attention_peer.py calls on PyTorch's tensors.
add_executable(bench_cuda_attention ${CMAKE_CURRENT_LIST_DIR}/cuda_attention.cc)
target_link_libraries(bench_cuda_attention PRIVATE braid_kernels_cuda)
add_library(bench_cuda_attention_c SHARED ${CMAKE_CURRENT_LIST_DIR}/cuda_attention_c.cc)
target_link_libraries(bench_cuda_attention_c PRIVATE braid_kernels_cuda)
