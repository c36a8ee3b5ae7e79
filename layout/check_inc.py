import os,re,sys,subprocess,collections
os.chdir(sys.argv[1])
files=[f for f in subprocess.check_output(['git','ls-files'],text=True).split() if f.endswith(('.h','.cpp','.cu')) and not f.startswith('fuzz/corpus')]
bad=0; mods=collections.defaultdict(set)
def module(p):
    m=re.match(r'src/(\w+)/',p) or re.match(r'(kernels|tests|bench|fuzz|examples|include)/',p)
    return m.group(1) if m else p
for f in files:
    for m in re.finditer(r'^\s*#\s*include\s*"([^"]+)"',open(f).read(),re.M):
        h=m.group(1)
        if h.startswith('isthmus/'): continue
        c=[p for p in ('src/'+h,h,'tests/'+h,os.path.join(os.path.dirname(f),h),'tests/cuda/'+h) if os.path.isfile(p)]
        if not c: print('missing',f,h); bad+=1
        else:
            a,b=module(f),module(c[0])
            if a!=b: mods[a].add(b)
for a in mods: print(a,sorted(mods[a]))
