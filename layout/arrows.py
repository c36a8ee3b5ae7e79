import sys,os,re,subprocess,collections
sys.path.insert(0,'layout')
import rooms
root=sys.argv[1]; pat=sys.argv[2]
os.chdir(root)
files=[f for f in subprocess.check_output(['git','ls-files'],text=True).split() if re.match(r'(src|kernels|include)/',f)]
new={f:(rooms.room(f) or f) for f in files}
arrows=collections.defaultdict(list)
for f in files:
    if not f.endswith(('.h','.cpp','.cu')): continue
    for m in re.finditer(r'^\s*#\s*include\s*"([^"]+)"',open(f).read(),re.M):
        h=m.group(1)
        p=('src/'+h) if os.path.exists('src/'+h) else h
        if p not in new: continue
        a,b=os.path.dirname(new[f]),os.path.dirname(new[p])
        if a!=b and re.match(pat,a) and re.match(pat,b): arrows[a,b].append(f'{os.path.basename(f)}->{os.path.basename(p)}')
for (a,b),l in sorted(arrows.items()):
    print(a,'->',b,len(l), l if len(l)<14 or (b,a) in arrows and len(arrows[b,a])>=len(l) else '')
