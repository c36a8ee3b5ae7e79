import os,sys,re
os.chdir(sys.argv[1])
def edit(p,*pairs,must=True):
    s=open(p).read()
    for a,b in pairs:
        if must: assert a in s,(p,a)
        s=s.replace(a,b)
    open(p,'w').write(s)
edit('kernels/cuda/simt.h',('"tests/cuda/emulated/simt.h"','"cuda/emulated/simt.h"'))
s=open('tests/cuda/CMakeLists.txt').read()
s=s.replace('set(emulation ${PROJECT_SOURCE_DIR}/kernels/cuda/emulated)','set(emulation ${CMAKE_CURRENT_SOURCE_DIR}/emulated)').replace('set(emulation ${PROJECT_SOURCE_DIR}/tests/cuda/emulated)','set(emulation ${CMAKE_CURRENT_SOURCE_DIR}/emulated)')
s=s.replace('target_link_libraries(isthmus_emulated PUBLIC ${modules} PRIVATE isthmus_flags)','target_link_libraries(isthmus_emulated PUBLIC ${modules} PRIVATE isthmus_flags)\ntarget_include_directories(isthmus_emulated PUBLIC ${PROJECT_SOURCE_DIR}/tests)  # kernels/cuda/simt.h')
open('tests/cuda/CMakeLists.txt','w').write(s)
edit('CMakeLists.txt',('add_subdirectory(src/core)\nadd_subdirectory(kernels)\n','add_subdirectory(src/core)\nadd_subdirectory(src/config)\nadd_subdirectory(src/data)\nadd_subdirectory(kernels)\n'))
if os.path.exists('src/session'):
    edit('CMakeLists.txt',('add_subdirectory(src/sim)\n','add_subdirectory(src/sim)\nadd_subdirectory(src/record)\nadd_subdirectory(src/session)\n'))
edit('src/core/CMakeLists.txt',('\n    tomlplusplus::tomlplusplus PkgConfig::SODIUM',' PkgConfig::SODIUM'))
edit('src/inner/CMakeLists.txt',('DEPENDS core kernels','DEPENDS core config data kernels'))
edit('src/sim/CMakeLists.txt',('DEPENDS core','DEPENDS core config'))
if os.path.exists('src/session'):
    edit('src/app/CMakeLists.txt',('DEPENDS app_messages core','DEPENDS session record config data core'))
else:
    edit('src/app/CMakeLists.txt',('DEPENDS app_messages core','DEPENDS app_messages config data core'))
edit('cmake/IsthmusInstall.cmake',('set(ISTHMUS_LIBRARY core kernels','set(ISTHMUS_LIBRARY core config kernels'))
