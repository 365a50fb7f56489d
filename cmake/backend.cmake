# The backend library: LLVM (ORC JIT).
find_package(LLVM 14 REQUIRED CONFIG)
cad_folder(backend backend backend/cpu backend/comm)
target_include_directories(cad_backend SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
target_link_libraries(cad_backend PUBLIC cad_ir PRIVATE LLVM)
target_link_directories(cad_backend PUBLIC ${LLVM_LIBRARY_DIRS})
