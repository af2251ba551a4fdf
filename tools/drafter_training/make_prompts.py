"""Prompts for a drafter's training corpus, made from templates: conversations of two turns in the eight kinds of
MT-bench, and single turns of the five other kinds of Spec-Bench.

Words that fill the templates come from the lists below and, for longer texts, from passages taken out of a file of
other prompts (--passages): a summary, an extraction, a retrieval question over several passages. Everything is drawn
with one seeded generator, so a seed names a prompt set. Prompts that also occur in an evaluation file (--exclude) are
dropped, and so is every prompt that shares a run of 12 words with one."""
import hashlib
import json
import random
import re

TOPICS = """the water cycle|photosynthesis|black holes|the French Revolution|machine learning|the stock market|home gardening|
bread baking|time management|electric cars|the immune system|volcanoes|renewable energy|the Roman Empire|chess|meditation|
public speaking|jazz|coral reefs|cryptography|inflation|the solar system|coffee|remote work|urban planning|bird migration|
the Silk Road|vaccines|the internet|poetry|board games|hiking|personal finance|dog training|the Renaissance|
quantum computing|recycling|robotics|the printing press|sleep|earthquakes|democracy|supply and demand|watercolor painting|
marathon training|bees|space exploration|nutrition|ancient Egypt|sailing|evolution|glaciers|film making|language learning|
the periodic table|bridges|tea|antibiotics|wind turbines|software testing|databases|sorting algorithms|the nervous system|
opera|insurance|origami|the Industrial Revolution|whales|lighthouses|typography|plate tectonics|negotiation|photography|
minimalism|the Olympic Games|castles|weather forecasting|probability|gravity|child psychology|fashion|museums|trains|
the carbon cycle|mushrooms|ballet|beekeeping|comets|drones|the Amazon rainforest|solar panels|libraries|cooking|taxes|
social media|video games|knitting|rivers|dinosaurs|maps|the human heart|neural networks|blockchain|the Cold War|Buddhism|
world trade|genetics|DNA|enzymes|the atom|chemical bonds|acids and bases|thermodynamics|magnetism|light|sound waves|
relativity|cell division|viruses|bacteria|hormones|the brain|memory|stress|anxiety|happiness|friendship|leadership|
teamwork|job interviews|resumes|customer service|marketing|startups|budgeting|investing|real estate|mortgages|
small businesses|e-commerce|cloud computing|cybersecurity|open source software|operating systems|compilers|recursion|
hash tables|binary trees|linear algebra|calculus|statistics|prime numbers|game theory|philosophy|ethics|stoicism|
existentialism|logic|Plato|Shakespeare|the Odyssey|science fiction|fairy tales|mythology|the Vikings|the Aztecs|
the Ottoman Empire|the Great Depression|World War II|the civil rights movement|women's suffrage|the United Nations|
the European Union|elections|human rights|free speech|immigration|globalization|poverty|education|homeschooling|
online courses|universities|scholarships|exams|note taking|reading|creative writing|journalism|podcasts|television|
animation|theater|painting|sculpture|architecture|interior design|furniture|woodworking|pottery|gardens|trees|forests|
deserts|oceans|tides|islands|mountains|caves|rivers and lakes|wetlands|climate change|air pollution|plastic waste|
water conservation|endangered species|wolves|elephants|penguins|sharks|butterflies|spiders|cats|horses|farming|
organic food|vegetarian cooking|chocolate|cheese|wine|spices|street food|breakfast|desserts|picnics|camping|cycling|
swimming|yoga|strength training|running shoes|soccer|basketball|tennis|cricket|skiing|surfing|martial arts|dance|guitar|
the piano|choirs|classical music|hip hop|festivals|weddings|birthdays|holidays|travel|backpacking|hotels|airports|
public transport|traffic|self-driving cars|bicycles|ships|submarines|airplanes|rockets|satellites|Mars|the Moon|stars|
galaxies|telescopes|microscopes|lasers|batteries|nuclear power|hydrogen|geothermal energy|smart homes|smartphones|
artificial intelligence|chatbots|virtual reality|3D printing|medicine|surgery|nursing|dentistry|mental health|diabetes|
allergies|first aid|aging|childhood|parenting|babies|toys|schools|teachers|volunteering|charities|community gardens|
neighborhoods|city parks|playgrounds|markets|shopping|advertising|brands|coupons|money|banks|credit cards|pensions|law|
contracts|courts|police|firefighters|emergency planning|floods|hurricanes|droughts|seasons|clouds|snow|rainbows""".replace("\n", "").split("|")
PLACES = """Japan|Italy|New Zealand|Peru|Morocco|Iceland|Canada|Thailand|Greece|Kenya|Portugal|Norway|Mexico|Vietnam|Scotland|
Egypt|Brazil|Croatia|Turkey|Chile|Paris|Istanbul|New York|Kyoto|Lisbon|Cape Town|Barcelona|Prague|Sydney|Vienna""".replace("\n", "").split("|")
PERSONS = """a nervous new teacher|a busy restaurant owner|a retired sailor|two old friends who meet by chance|a lost robot|
a small town mayor|a young violinist|a detective who hates rain|a curious cat|an astronaut on her last mission|
a baker with a secret|a shy inventor|a bus driver|twin sisters|a lighthouse keeper|a student before an exam|a time traveler|
a dragon who is afraid of fire|an old librarian|a clumsy magician|a farmer in a dry year|a chess champion|a ghost|
a nurse on night shift|a young king|a street musician|a forgetful professor|a spy who wants to retire""".replace("\n", "").split("|")
FAMOUS = """Albert Einstein|Marie Curie|William Shakespeare|Leonardo da Vinci|Cleopatra|Isaac Newton|Mozart|Nikola Tesla|Jane Austen|
Abraham Lincoln|Mahatma Gandhi|Charles Darwin|Ada Lovelace|Socrates|Frida Kahlo|Galileo|Julius Caesar|Beethoven|
Sherlock Holmes|a medieval knight|a pirate captain|a Roman senator|a wise old wizard|a stand-up comedian""".replace("\n", "").split("|")
JOBS = """doctor|lawyer|chef|travel guide|career coach|history teacher|software engineer|personal trainer|interior designer|
financial advisor|journalist|scientist|gardener|therapist|mechanic|librarian|event planner|nutritionist|movie critic|
english teacher|relationship coach|product manager|stand-up comedian|math tutor|tech support agent|museum guide|
poet|negotiator|recruiter|sales manager""".replace("\n", "").split("|")
NAMES = "Anna|Ben|Carla|David|Eva|Felix|Grace|Hugo|Maria|James|Linda|Tom|Sarah|Peter|Nina|Omar|Lucy|Jack|Emma|Noah".split("|")
THINGS = "notebooks|pens|apples|tickets|books|cookies|chairs|lamps|shirts|bottles|eggs|stickers|marbles|flowers|toys".split("|")
STYLES = "a limerick|a haiku|a formal letter|a bulleted list|a short poem|a news headline and one paragraph|a tweet|a dialogue|a table|a speech|a bedtime story|a recipe".split("|")
FUNCTIONS = """returns the n-th Fibonacci number|checks whether a string is a palindrome|counts the vowels in a string|
merges two sorted lists|removes duplicates from a list while keeping the order|computes the factorial of a number|
finds the longest word in a sentence|converts Celsius to Fahrenheit|checks whether a number is prime|
reverses the words of a sentence|computes the average of a list|flattens a nested list|
finds the second largest number in a list|counts how often each word occurs in a text|rotates a list by k places|
validates an e-mail address|computes the greatest common divisor|groups words that are anagrams|transposes a matrix|
reads a CSV file and sums a column|implements binary search|implements a stack with push and pop|parses a date string|
generates a random password|converts a number to Roman numerals|finds the median of two arrays|reverses a linked list|
computes the depth of a binary tree|finds the shortest path in a grid|finds all subsets of a set|sorts a list with quicksort|
implements merge sort|finds the longest common prefix|computes the sum of the digits|checks balanced parentheses|
finds the missing number in a sequence|implements a queue with two stacks|computes the power of a number|
finds the maximum subarray sum|counts the set bits of an integer|converts a binary string to an integer|
finds two numbers that add up to a target|removes punctuation from a text|capitalizes each word|
finds common elements of two lists|computes the edit distance of two strings|prints a multiplication table|
reads a JSON file and prints its keys|fetches a web page and prints its title|writes a log message with a timestamp""".replace("\n", "").split("|")
CODE_LANGUAGES = "Python|Python|Python|C++|Java|JavaScript|SQL|Rust|Go".split("|")
PAGES = "a contact form|a to-do list|a photo gallery|a quiz with three questions|a countdown timer|a random quote button|a color picker|a login page|a calculator|a shopping cart|a weather card|a music playlist".split("|")
SENTENCES = {
    "German": """Die Bibliothek öffnet um neun Uhr und schließt um sechs.|Der Minister sprach am Montag mit Vertretern der Gewerkschaften über die neuen Löhne.|Trotz des starken Regens wurde das Spiel nicht abgesagt.|Viele Menschen lesen die Nachrichten lieber auf ihrem Telefon.|Die neue Brücke verkürzt die Fahrt um fast eine Stunde.|Nach Angaben der Polizei wurde niemand verletzt.|Meine Großmutter erzählte uns Geschichten aus dem Dorf, in dem sie geboren wurde.|Das Unternehmen will im nächsten Jahr zwanzig Ingenieure einstellen.|Die Mannschaft gewann das Finale mit drei zu eins.|Der Versuch scheiterte, weil die Temperatur zu niedrig war.|Im Sommer fahren wir mit dem Zug an die Ostsee.|Die Stadt plant einen neuen Park am Ufer des Flusses.|Er hat heute Morgen seinen Regenschirm im Zug vergessen.|Die Preise für Lebensmittel sind in den letzten Monaten gestiegen.|Wissenschaftler haben eine neue Art von Fröschen entdeckt.|Das Gericht verschob die Entscheidung auf nächste Woche.|Ohne Wasser kann keine Pflanze wachsen.|Der Verein sucht freiwillige Helfer für das Fest am Samstag.|Die Ausstellung zeigt Fotos aus den zwanziger Jahren.|Der Film erzählt die Geschichte zweier Brüder im Krieg.""".split("|"),
    "French": """La bibliothèque ouvre à neuf heures et ferme à dix-huit heures.|Le ministre a rencontré les syndicats lundi matin.|Malgré la pluie, le match n'a pas été annulé.|Beaucoup de gens préfèrent lire les nouvelles sur leur téléphone.|La police affirme que personne n'a été blessé.|L'entreprise veut embaucher vingt ingénieurs l'année prochaine.""".split("|"),
    "Spanish": """La biblioteca abre a las nueve y cierra a las seis.|El ministro se reunió con los sindicatos el lunes.|A pesar de la lluvia, el partido no fue cancelado.|Mi abuela nos contaba historias del pueblo donde nació.|La empresa quiere contratar a veinte ingenieros el próximo año.""".split("|"),
}
ENGLISH = """I would like to move our meeting from Tuesday to Thursday.|The library opens at nine and closes at six on weekdays.|She has been learning the piano since she was a child.|We need three kilos of potatoes, two onions and some butter.|Despite the heavy rain, the match was not cancelled.|The new bridge shortened the journey by almost an hour.|He forgot his umbrella on the train this morning.|Many people prefer to read the news on their phones.|The experiment failed because the temperature was too low.|My grandmother told us stories about the village where she was born.""".split("|")
GERMAN_PARTS = (
    "Der Minister|Die Polizei|Ein Sprecher der Firma|Die Trainerin|Der Bürgermeister|Eine Studie|Der Verband|Die Zeitung|Mein Nachbar|Die Regierung|Der Verein|Ein Forscher aus Berlin|Die junge Ärztin|Das Museum|Der Präsident|Die Universität".split("|"),
    "erklärte am Montag|sagte gestern|berichtete am Freitag|bestätigte heute|betonte in einem Interview|teilte am Abend mit|schrieb in einem Brief|warnte davor".split("|"),
    "dass die Kosten im nächsten Jahr steigen werden|dass niemand verletzt wurde|dass das Projekt bis Ende Mai fertig sein soll|dass viele Menschen auf die Bahn umsteigen|dass die Verhandlungen gescheitert sind|dass das Spiel am Sonntag stattfindet|dass die Zahl der Besucher gesunken ist|dass die Ursache noch nicht bekannt ist|dass neue Regeln für den Verkehr gelten|dass die Schule im Herbst wieder öffnet|dass der Fluss über die Ufer getreten ist|dass mehr Geld für Bildung nötig ist|dass die Wahl verschoben wurde|dass die alten Häuser renoviert werden".split("|"),
)

FOLLOW_UPS = {
    "writing": "Rewrite your previous response as {style}.|Take your previous response and make it shorter.|Rewrite your previous response in a more formal tone.|Now rewrite it for a ten-year-old reader.|Start every sentence with the letter {letter}.|Can you add a surprising ending?|Evaluate and critique your own response.|Now write a title and a one-sentence summary for it.|Rewrite it without using the word \"the\".|Translate the first two sentences into {language}.".split("|"),
    "roleplay": "What would you say to somebody who disagrees with you?|And what do you think about {t}?|How would you explain that to a child?|What is your biggest regret?|Can you give me three concrete pieces of advice?|I tried that already and it did not work. What else?|What do you like most about your work?|Stay in your role and answer: what should I do first?".split("|"),
    "reasoning": "What would the answer be if the order was reversed?|Explain your reasoning step by step.|Are you sure? Check your answer again.|Give another example of the same kind.|What assumption did you make?|How would the answer change if there was one more of them?".split("|"),
    "math": "What if the first number was doubled?|Show how to check the result.|Write the solution as a single equation.|How much is that in percent?|What is the answer if {n} also gets {a} more?|Explain each step in more detail.".split("|"),
    "coding": "Can you write tests for it?|Explain the time complexity.|Now rewrite it in {code}.|Can you make it faster?|Add comments to the code.|How would you handle invalid input?|Can you do it without a loop?|What would you change for very large inputs?".split("|"),
    "extraction": "Output it in JSON format.|Reformulate your previous reply as a bulleted list.|Now sort the items alphabetically.|Which of these is mentioned first?|Add one sentence of explanation to each item.|Summarize your answer in one sentence.".split("|"),
    "stem": "Can you give a concrete example?|What are the practical applications of this?|Explain the same with an analogy.|Which assumptions does this rely on?|How could you test this in an experiment?|What is still unknown about it?|Give an estimate with actual numbers.".split("|"),
    "humanities": "Pick one example and explain it in detail.|What would a critic say about this?|Write a short dialogue between two people who disagree about it.|How is this relevant today?|Compare this with {t}.|Explain it with a metaphor.|Give three discussion questions about it.".split("|"),
}
FIRST_TURNS = {
    "writing": """Write a short essay about {t}.|Compose a travel blog post about a trip to {place}, with food and sights.|Write a persuasive email to convince a friend to try {t}.|Draft a professional email to a colleague asking for feedback on a report about {t}.|Write a story about {p} who discovers {t}.|Write a blog post about {t} with an introduction and a conclusion.|Write a product description for a book about {t}.|Describe a vivid scene in {place} at night.|Write a poem about {t}.|Create an outline for an article that compares {t} and {t2}.|Write a short story that begins with the sentence: "{p_cap} opened the door."|Compose a cover letter for a job as a {job}.|Write a speech about {t} for a school event.|Write a diary entry of {p} on a difficult day.|Write a review of a restaurant in {place}.|Write a short script in which {p} talks about {t}.""".split("|"),
    "roleplay": """Pretend to be {famous} and tell me about your day.|You are a {job}. A client asks you about {t}. What do you answer?|Imagine you are {p}. Introduce yourself and answer questions about {t}.|Act as a {job} and help me to plan a week about {t}.|Play the role of {famous} and explain {t}.|You are {famous}. Give a short interview about {t}.|As a {job}, what advice do you have for a beginner?|Picture yourself as a tree in {place}. What do you think about {t}?|Please assume the role of an English translator and improve this sentence: {english}""".split("|"),
    "reasoning": """{n} is taller than {n2}, and {n2} is taller than {n3}. Who is the shortest?|{n} has {k} brothers and each brother has {k2} sisters. How many sisters does {n} have?|If {t} did not exist, what would change?|Which word does not belong: {thing}, {thing2}, {place}? Explain why.|{n} left home facing north, turned right, then right again. Which direction does {n} face now?|In a race {n} overtakes the person in place {k}. In which place is {n} now?|All {thing} are {thing2}. Some {thing2} are red. Are some {thing} red?|Is it better to learn about {t} or about {t2} first? Give your reasons.|Why might somebody who likes {t} dislike {t2}?|One morning {n} saw a shadow falling to the left. Which direction was {n} facing?""".split("|"),
    "math": """{n} buys {a} {thing} for {b} dollars each and {c} {thing2} for {d} dollars each. How much does {n} pay in total?|A train travels at {a} km/h for {k} hours and then at {b} km/h for {k2} hours. How far does it travel?|A rectangle is {a} meters long and {b} meters wide. What are its area and its perimeter?|Solve for x: {k}x + {b} = {a}.|The vertices of a triangle are at ({k}, {k2}), (0, 0) and ({k2}, {b}). What is the area of the triangle?|In a survey {a}% of people like {t} and {b}% like {t2}. {k}% like both. What percentage likes neither?|What is the probability of rolling a sum of {k} with two dice?|If f(x) = {k}x^2 + {k2}x - {b}, what is f({k2})?|{n} invests {a}00 dollars at {k} percent interest per year. How much is it after {k2} years?|How many integers satisfy |x + {k}| < {a}?|{n} had {a} {thing} and gave {k} to each of {k2} friends. How many are left?""".split("|"),
    "coding": """Write a {code} function that {f}.|Write a {code} program that {f}, with comments.|Implement a function in {code} that {f}.|Explain step by step how to write a function that {f}.|Write a simple website in HTML with {page}.|Given a table of {thing} with a price and a date, write a SQL query for the average price per month.|What is wrong with this function?\n\ndef f(x):\n    for i in range(len(x)):\n        x.remove(x[i])\n    return x|Write a regular expression in {code} that finds dates in a text.|Complete the following function.\n\ndef solve(x):\n    \"\"\"A function that {f}.\"\"\"\n|from typing import List\n\n\ndef solve(values: List[int]) -> int:\n    \"\"\" A function that {f}.\n    \"\"\"\n""".split("|"),
    "stem": """Explain {t} in simple terms.|What are the main stages of {t}? Describe each one.|How does {t} work?|What is the role of {t} in everyday life?|Describe the relationship between {t} and {t2}.|What causes changes in {t}?|Describe an experiment about {t}.|What are the three most important facts about {t}?|Which recent advances have been made in {t}?""".split("|"),
    "humanities": """Discuss {t} and its impact on society.|Compare two different views on {t}.|What were the main causes and consequences of {t}?|How has {t} changed over the last hundred years?|Create a lesson plan about {t} for high school students.|How do economics and {t} influence each other?|Why is {t} important?|What are common misconceptions about {t}?|Suggest five documentaries or books about {t} and say what each one is about.|Write a dialogue between a student and a professor about {t}.|What are the benefits and drawbacks of {t}?""".split("|"),
}
EXTRACT = """Extract all names of people and places from the following text.\n\n{text}|Read the text and list the main facts as bullet points.\n\n{text}|Identify the main topic, the people involved and the outcome. Answer in JSON.\n\n{text}|Count how many times the word "the" appears in the text below.\n\n{text}|Given the following text, write three questions with their answers.\n\n{text}|Find all numbers and dates in this text and say what they mean.\n\n{text}""".split("|")
QA = """What is {t}?|Who invented {t}?|Where does the word for {t} come from?|When did {t} become widely known?|Who plays the main character in the movie about {t}?|Where is {place} on the map?|What is the capital of {place}?|How many people live in {place}?|Who wrote the book about {t}?|When was the last time {place} hosted a big event?|Who sings the song about {t}?|What is the meaning of {t} in {place}?|How long does it take to learn about {t}?|Who was the first person to study {t}?|What year did {famous} die?|Where did {famous} live?|What is {famous} known for?|Which country is famous for {t}?""".split("|")


def words(text):
    return re.findall(r"\w+", text.lower())


class Overlap:
    """Knows evaluation prompts by their words and by their runs of 12 words."""

    RUN = 12

    def __init__(self, texts):
        self.keys, self.runs = set(), set()
        for text in texts:
            w = words(text)
            self.keys.add(words_key(text))
            self.runs.update(tuple(w[i : i + self.RUN]) for i in range(len(w) - self.RUN + 1))

    def hits(self, text):
        w = words(text)
        return words_key(text) in self.keys or any(tuple(w[i : i + self.RUN]) in self.runs for i in range(len(w) - self.RUN + 1))


def words_key(text):
    """Of the words alone, so that spacing and case do not hide a repeated prompt."""
    return hashlib.sha256(" ".join(words(text)).encode()).hexdigest()


def prompt_hash(text):
    """The hash that traces and artefacts list (docs/FORMATS.md, Traces): FNV-1a, 64 bits, white space at both ends left out."""
    value = 0xCBF29CE484222325
    for byte in text.strip(" \t\n\r\f\v").encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


class Maker:
    def __init__(self, seed, passages):
        self.rng, self.passages = random.Random(seed), passages

    def fill(self, template):
        r = self.rng
        t, t2 = r.sample(TOPICS, 2)
        n, n2, n3 = r.sample(NAMES, 3)
        p = r.choice(PERSONS)
        return template.format(
            t=t, t2=t2, n=n, n2=n2, n3=n3, p=p, p_cap=p[0].upper() + p[1:], place=r.choice(PLACES), famous=r.choice(FAMOUS), job=r.choice(JOBS),
            thing=r.choice(THINGS), thing2=r.choice(THINGS), style=r.choice(STYLES), f=r.choice(FUNCTIONS), code=r.choice(CODE_LANGUAGES),
            page=r.choice(PAGES), english=r.choice(ENGLISH), language=r.choice(["German", "French", "Spanish", "Italian"]),
            letter=r.choice("ABCDEFGHILMNOPRSTW"), a=r.randint(3, 99), b=r.randint(2, 60), c=r.randint(2, 40), d=r.randint(2, 12),
            k=r.randint(2, 9), k2=r.randint(2, 7), text="")

    def passage(self, least, most):
        texts = [self.rng.choice(self.passages)]
        while sum(map(len, texts)) < least:
            texts.append(self.rng.choice(self.passages))
        return " ".join(texts)[:most].rsplit(" ", 1)[0]

    def conversation(self, kind):
        if kind == "extraction":
            first = self.rng.choice(EXTRACT).replace("{text}", self.passage(200, 900))
        else:
            first = self.fill(self.rng.choice(FIRST_TURNS[kind]))
        return [first, self.fill(self.rng.choice(FOLLOW_UPS[kind]))]

    def single(self, kind):
        r = self.rng
        if kind == "translation":
            if r.random() < 0.75:
                who, said, what = (r.choice(part) for part in GERMAN_PARTS)
                text = f"{who} {said}, {what}." if r.random() < 0.7 else r.choice(SENTENCES["German"])
                return f"Translate German to English: {text}"
            language = r.choice(["French", "Spanish"])
            if r.random() < 0.5:
                return f"Translate {language} to English: {r.choice(SENTENCES[language])}"
            return f"Translate the following sentence into {language}: {r.choice(ENGLISH)}"
        if kind == "summarization":
            return r.choice(["Summarize: ", "Summarize: ", "Summarize the following text in two sentences.\n\n"]) + self.passage(900, 3200)
        if kind == "rag":
            return self.passage(2200, 3100) + "\n" + self.fill(r.choice(QA))
        if kind == "qa":
            return self.fill(r.choice(QA))
        raise ValueError(kind)


def passages_of(path):
    """The longer paragraphs of another prompt file."""
    found = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            for part in "\n".join(record.get("turns") or [record["prompt"]]).split("\n"):
                part = " ".join(part.split())
                if 300 <= len(part) <= 1600:
                    found.append(part)
    return found


def make(seed, counts, passages, overlap):
    """Conversations `{id, source, category, turns}`; `counts` says how many of each kind."""
    maker, seen, out = Maker(seed, passages), set(), []
    for kind, count in counts.items():
        made = tries = 0
        while made < count and tries < 20 * count:
            tries += 1
            turns = maker.conversation(kind) if kind in FOLLOW_UPS else [maker.single(kind)]
            key = words_key(turns[0])
            if key in seen or any(overlap.hits(t) for t in turns):
                continue
            seen.add(key)
            out.append({"id": f"made-{kind}-{made}", "source": "made", "category": kind, "turns": turns})
            made += 1
    return out
