"""After move.py: CMake lists of the new modules."""
import os,sys,subprocess
os.chdir(sys.argv[1])
def cpps(folder,stub=lambda f:False):
    out=[]
    for d,_,fs in os.walk(folder):
        for f in fs:
            if f.endswith('.cpp') and not f.endswith('_stub.cpp'): out.append(os.path.relpath(os.path.join(d,f),folder))
    return sorted(out)
def write(folder,name,depends,links='',head='',tail='',extra=()):
    src='\n'.join('    '+c for c in cpps(folder)+list(extra))
    t=f'# SPDX-License-Identifier: Apache-2.0\n{head}isthmus_module({name}\n  SOURCES\n{src}\n  DEPENDS {depends}'
    if links: t+=f'\n  PRIVATE_LINKS {links}'
    t+=')\n'+tail
    open(folder+'/CMakeLists.txt','w').write(t)
write('src/config','config','core','nlohmann_json::nlohmann_json tomlplusplus::tomlplusplus')
write('src/data','data','core')
build_info=open('src/app/CMakeLists.txt').read()
i=build_info.index('# The commit may change'); j=build_info.index('add_dependencies(isthmus_app isthmus_build_info)')
block=build_info[i:j]
app=build_info[:i]+build_info[j+len('add_dependencies(isthmus_app isthmus_build_info)\n'):].lstrip('\n')
if os.path.exists('src/record'):
    write('src/record','record','core config kernels quant transport','nlohmann_json::nlohmann_json',
      tail='\n'+block+'add_dependencies(isthmus_record isthmus_build_info)\n',extra=['"${CMAKE_CURRENT_BINARY_DIR}/build_info.cpp"'])
    write('src/session','session','record core config data kernels quant transport outer sim','nlohmann_json::nlohmann_json')
app=app.replace('    "${CMAKE_CURRENT_BINARY_DIR}/build_info.cpp"\n','')
open('src/app/CMakeLists.txt','w').write(app)
